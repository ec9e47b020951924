// An application that Myriad asks what its clients may do: go run application.go [PORT] [SECONDS].
// SECONDS is how long a connection and a subscription last until Myriad asks again.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"
)

type object = map[string]any

type call struct {
	User, Channel, Method string
	Data                  struct{ Name, Text string }
}

var seconds int64 = 60

func expireAt() int64 { return time.Now().Unix() + seconds }

func refuse(code int, message string) object {
	return object{"error": object{"code": code, "message": message}}
}

func refresh(call) object { return object{"result": object{"expire_at": expireAt()}} }

var calls = map[string]func(call) object{
	"/connect": func(c call) object {
		name := c.Data.Name
		if name == "" {
			return object{"disconnect": object{"code": 4501, "reason": "say your name"}}
		}
		return object{"result": object{"user": name, "expire_at": expireAt(), "data": object{"hello": name}, "channels": []string{"news"}}}
	},
	"/refresh": refresh,
	"/subscribe": func(c call) object {
		if c.Channel == "chat:staff" && c.User != "ada" {
			return refuse(403, "for staff only")
		}
		return object{"result": object{"expire_at": expireAt(), "info": object{"name": c.User}}}
	},
	"/publish": func(c call) object {
		return object{"result": object{"data": object{"text": c.Data.Text, "from": c.User}}}
	},
	"/sub_refresh": refresh,
	"/rpc": func(c call) object {
		if c.Method != "time" {
			return refuse(404, "no such method")
		}
		return object{"result": object{"data": object{"time": time.Now().Unix(), "you": c.User}}}
	},
}

func main() {
	port := "3000"
	if len(os.Args) > 1 {
		port = os.Args[1]
	}
	if len(os.Args) > 2 {
		seconds, _ = strconv.ParseInt(os.Args[2], 10, 64)
	}
	for path, answer := range calls {
		http.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			var c call
			if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			json.NewEncoder(w).Encode(answer(c))
		})
	}
	listener, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("listening on", listener.Addr())
	log.Fatal(http.Serve(listener, nil))
}
