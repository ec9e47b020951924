package clients

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A test that waits longer has failed.
const patience = 30 * time.Second

const config = `
anonymous = true
[[channel.namespaces]]
name = "chat"
presence = true
join_leave = true
history_size = 100
history_ttl = "300s"
allow_subscribe_for_client = true
allow_subscribe_for_anonymous = true
[http_api]
key = "k"
`

// program is the server that the environment names, or one that was built here.
func program(t *testing.T) string {
	for _, path := range []string{
		os.Getenv("MYRIAD_BIN"), os.Getenv("MYRIAD"), "../../../target/release/myriad", "../../../target/debug/myriad",
	} {
		if _, err := os.Stat(path); path != "" && err == nil {
			return path
		}
	}
	t.Fatal("no server: build it, or name it in MYRIAD_BIN")
	return ""
}

// serve starts a server of the test's own, and returns its address.
func serve(t *testing.T) string {
	return start(t, `^listening on (\S+) \(`)
}

// serveTls starts a server of the test's own, and returns where it speaks TLS.
func serveTls(t *testing.T, flags ...string) string {
	return start(t, `^TLS on (\S+) `, flags...)
}

// start starts a server, and returns the address in the first line of its log that the pattern finds.
func start(t *testing.T, pattern string, flags ...string) string {
	file := filepath.Join(t.TempDir(), "myriad.toml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	fixed := []string{"serve", "--listen", "127.0.0.1:0", "--max-connections", "2000", "--drain", "0", "--config", file}
	command := exec.Command(program(t), append(fixed, flags...)...)
	log, err := command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait()
	})
	listening := regexp.MustCompile(pattern)
	said, lines := "", bufio.NewScanner(log)
	for lines.Scan() {
		if found := listening.FindStringSubmatch(lines.Text()); found != nil {
			go func() { _, _ = io.Copy(io.Discard, log) }()
			return found[1]
		}
		said += lines.Text() + "\n"
	}
	t.Fatalf("the server did not start: %s", said)
	return ""
}

// visitor is a client of the Centrifuge protocol, in as much of WebSocket as a test needs.
type visitor struct {
	t      *testing.T
	socket net.Conn
	reader *bufio.Reader
	id     string
	unread []map[string]any
}

func visit(t *testing.T, address string, channels ...string) *visitor {
	socket, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	_ = socket.SetDeadline(time.Now().Add(patience))
	v := upgrade(t, socket, address, "/connection/websocket")
	v.id = v.call(1, "connect", map[string]any{})["client"].(string)
	for index, channel := range channels {
		v.call(2+index, "subscribe", map[string]any{"channel": channel})
	}
	return v
}

// upgrade makes a WebSocket of a connection.
func upgrade(t *testing.T, socket net.Conn, address, path string) *visitor {
	v := &visitor{t: t, socket: socket, reader: bufio.NewReader(socket)}
	fmt.Fprintf(socket, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", path, address)
	for line := "-"; strings.TrimSpace(line) != ""; {
		var err error
		if line, err = v.reader.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	return v
}

// call sends a command, and returns its reply.
func (v *visitor) call(id int, method string, params map[string]any) map[string]any {
	text, err := json.Marshal(map[string]any{"id": id, method: params})
	if err != nil {
		v.t.Fatal(err)
	}
	v.send(1, text)
	reply := v.find(func(line map[string]any) bool { return line["id"] == float64(id) })
	result, ok := reply[method].(map[string]any)
	if !ok {
		v.t.Fatalf("%s: %v", method, reply)
	}
	return result
}

// send sends a message in one frame. Masked with zeros, its payload stays as it is.
func (v *visitor) send(opcode byte, payload []byte) {
	head := []byte{0x80 | opcode, 0x80 | 127}
	switch length := len(payload); {
	case length < 126:
		head[1] = 0x80 | byte(length)
	case length < 1<<16:
		head[1] = 0x80 | 126
		head = binary.BigEndian.AppendUint16(head, uint16(length))
	default:
		head = binary.BigEndian.AppendUint64(head, uint64(length))
	}
	if _, err := v.socket.Write(append(append(head, 0, 0, 0, 0), payload...)); err != nil {
		v.t.Fatal(err)
	}
}

// push is the next push of a kind.
func (v *visitor) push(kind string) map[string]any {
	line := v.find(func(line map[string]any) bool {
		push, ok := line["push"].(map[string]any)
		return ok && push[kind] != nil
	})
	return line["push"].(map[string]any)
}

func (v *visitor) find(is func(map[string]any) bool) map[string]any {
	for {
		for index, line := range v.unread {
			if is(line) {
				v.unread = append(v.unread[:index:index], v.unread[index+1:]...)
				return line
			}
		}
		opcode, payload := v.frame()
		if opcode != 1 {
			v.t.Fatalf("frame %d: %s", opcode, payload)
		}
		for _, text := range strings.Split(string(payload), "\n") {
			var line map[string]any
			if err := json.Unmarshal([]byte(text), &line); err != nil {
				v.t.Fatal(err)
			}
			v.unread = append(v.unread, line)
		}
	}
}

// closed is how the connection ends.
func (v *visitor) closed() (code uint16, reason string) {
	for {
		if opcode, payload := v.frame(); opcode == 8 {
			return binary.BigEndian.Uint16(payload), string(payload[2:])
		}
	}
}

func (v *visitor) frame() (opcode byte, payload []byte) {
	read := func(count int) []byte {
		bytes := make([]byte, count)
		if _, err := io.ReadFull(v.reader, bytes); err != nil {
			v.t.Fatal(err)
		}
		return bytes
	}
	head := read(2)
	length := int(head[1])
	switch length {
	case 126:
		length = int(binary.BigEndian.Uint16(read(2)))
	case 127:
		length = int(binary.BigEndian.Uint64(read(8)))
	}
	return head[0] & 15, read(length)
}
