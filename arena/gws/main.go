// Go with gws: net/http for the HTTP side, one goroutine per connection that reads, gws.Broadcaster for pushes.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/lxzan/gws"
)

const (
	messageBytesMax = 131_072
	requestBytesMax = 4_096
)

func env(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

// crowd is all open connections. A plain map under a lock: it changes once per connection, and a push walks it whole.
type crowd struct {
	gws.BuiltinEventHandler
	echo bool

	// pushing keeps the order of broadcasts the same for everybody.
	pushing sync.Mutex
	mutex   sync.RWMutex
	open    map[*gws.Conn]struct{}
}

func (c *crowd) OnOpen(socket *gws.Conn) {
	c.mutex.Lock()
	c.open[socket] = struct{}{}
	c.mutex.Unlock()
}

func (c *crowd) OnClose(socket *gws.Conn, _ error) {
	c.mutex.Lock()
	delete(c.open, socket)
	c.mutex.Unlock()
}

func (c *crowd) OnPing(socket *gws.Conn, payload []byte) {
	_ = socket.WritePong(payload)
}

func (c *crowd) OnMessage(socket *gws.Conn, message *gws.Message) {
	defer message.Close()
	if c.echo {
		_ = socket.WriteMessage(message.Opcode, message.Bytes())
	}
}

func (c *crowd) count() int {
	c.mutex.RLock()
	defer c.mutex.RUnlock()
	return len(c.open)
}

func (c *crowd) broadcast(payload []byte) int {
	c.pushing.Lock()
	defer c.pushing.Unlock()
	broadcaster := gws.NewBroadcaster(gws.OpcodeText, payload)
	defer broadcaster.Close()
	c.mutex.RLock()
	defer c.mutex.RUnlock()
	handed := 0
	for socket := range c.open {
		if broadcaster.Broadcast(socket) == nil {
			handed++
		}
	}
	return handed
}

func (c *crowd) pushEvery(interval time.Duration) {
	tick := 0
	for range time.Tick(interval) {
		tick++
		c.broadcast(fmt.Appendf(nil, "tick %d", tick))
	}
}

func answerConnections(response http.ResponseWriter, connections int) {
	_ = json.NewEncoder(response).Encode(map[string]int{"connections": connections})
}

// body reads it whole, or answers that it is too long.
func body(response http.ResponseWriter, request *http.Request, bytesMax int64) ([]byte, bool) {
	data, err := io.ReadAll(http.MaxBytesReader(response, request.Body, bytesMax))
	if err == nil {
		return data, true
	}
	status := http.StatusBadRequest
	if tooLong := new(http.MaxBytesError); errors.As(err, &tooLong) {
		status = http.StatusRequestEntityTooLarge
	}
	response.WriteHeader(status)
	return nil, false
}

func (c *crowd) routes() *http.ServeMux {
	upgrader := gws.NewUpgrader(c, &gws.ServerOption{
		ReadMaxPayloadSize: messageBytesMax,
		ReadBufferSize:     1024,
		WriteBufferSize:    1024,
		CheckUtf8Enabled:   c.echo,
	})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(response http.ResponseWriter, request *http.Request) {
		socket, err := upgrader.Upgrade(response, request)
		if err != nil {
			return
		}
		// A goroutine of its own, so that what net/http keeps of the request can be collected.
		go socket.ReadLoop()
	})
	mux.HandleFunc("GET /stats", func(response http.ResponseWriter, _ *http.Request) {
		answerConnections(response, c.count())
	})
	mux.HandleFunc("POST /broadcast", func(response http.ResponseWriter, request *http.Request) {
		if data, ok := body(response, request, messageBytesMax); ok {
			answerConnections(response, c.broadcast(data))
		}
	})
	mux.HandleFunc("POST /request", func(response http.ResponseWriter, request *http.Request) {
		if data, ok := body(response, request, requestBytesMax); ok {
			_, _ = response.Write(data)
		}
	})
	return mux
}

// serve speaks TLS 1.3 if there is a certificate.
func serve(server *http.Server, listener net.Listener) error {
	certificate, key := env("TLS_CERTIFICATE", ""), env("TLS_KEY", "")
	if certificate == "" {
		return server.Serve(listener)
	}
	// Without HTTP/2, whose connections carry no upgrade.
	server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"}}
	server.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){}
	return server.ServeTLS(listener, certificate, key)
}

func main() {
	crowd := &crowd{echo: env("MODE", "push") == "echo", open: make(map[*gws.Conn]struct{})}
	if everyMs, _ := strconv.Atoi(env("PUSH_EVERY_MS", "0")); everyMs > 0 {
		go crowd.pushEvery(time.Duration(everyMs) * time.Millisecond)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(env("HOST", "127.0.0.1"), env("PORT", "9000")))
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Handler: crowd.routes()}
	ended, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	go func() {
		<-ended.Done()
		os.Exit(0)
	}()
	log.Fatal(serve(server, listener))
}
