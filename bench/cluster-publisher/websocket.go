package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
)

const (
	finalText  = 0x81
	finalClose = 0x88
	isMasked   = 0x80
	// In place of a length: it follows in two or in eight bytes.
	lengthIn2 = 126
	lengthIn8 = 127
	// The largest frame that a node takes and that this program writes.
	frameBytesMax = 65_535
	// Any 16 bytes in base64. The server's proof is not checked: what follows would fail.
	webSocketKey = "MDEyMzQ1Njc4OWFiY2RlZg=="
)

// webSocket is a client's connection: as much of RFC 6455 as nodes and this program use, which is text in single frames.
type webSocket struct {
	connection net.Conn
	reader     *bufio.Reader
}

// dial opens a connection to a ws:// URL.
func dial(address string) (*webSocket, error) {
	target, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	connection, err := net.Dial("tcp", target.Host)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequest(http.MethodGet, "http://"+target.Host+target.RequestURI(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Connection", "Upgrade")
	request.Header.Set("Upgrade", "websocket")
	request.Header.Set("Sec-WebSocket-Version", "13")
	request.Header.Set("Sec-WebSocket-Key", webSocketKey)
	if err := request.Write(connection); err != nil {
		return nil, err
	}
	reader := bufio.NewReaderSize(connection, frameBytesMax)
	answer, err := http.ReadResponse(reader, request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusSwitchingProtocols {
		return nil, fmt.Errorf("the upgrade is answered with %s", answer.Status)
	}
	return &webSocket{connection, reader}, nil
}

// send writes a text frame. Its mask is zero and leaves the text as it is: masks protect proxies, and there is none.
func (w *webSocket) send(text []byte) error {
	if len(text) > frameBytesMax {
		return fmt.Errorf("a frame of %d bytes is too large: choose fewer publications under way", len(text))
	}
	frame := make([]byte, 0, len(text)+8)
	if len(text) < lengthIn2 {
		frame = append(frame, finalText, isMasked|byte(len(text)))
	} else {
		frame = append(frame, finalText, isMasked|lengthIn2)
		frame = binary.BigEndian.AppendUint16(frame, uint16(len(text)))
	}
	frame = append(frame, 0, 0, 0, 0)
	_, err := w.connection.Write(append(frame, text...))
	return err
}

// receive reads the next text frame.
func (w *webSocket) receive() ([]byte, error) {
	var head [2]byte
	if _, err := io.ReadFull(w.reader, head[:]); err != nil {
		return nil, err
	}
	size := uint64(head[1])
	switch size {
	case lengthIn2:
		var short [2]byte
		if _, err := io.ReadFull(w.reader, short[:]); err != nil {
			return nil, err
		}
		size = uint64(binary.BigEndian.Uint16(short[:]))
	case lengthIn8:
		return nil, errors.New("the node sent a frame of more than 64 KiB, which no answers need")
	}
	content := make([]byte, size)
	if _, err := io.ReadFull(w.reader, content); err != nil {
		return nil, err
	}
	switch head[0] {
	case finalText:
		return content, nil
	case finalClose:
		return nil, closed(content)
	default:
		return nil, fmt.Errorf("the node sent a frame that begins with %#x", head[0])
	}
}

// closed is the error of a close frame: two bytes of a code, then the reason.
func closed(content []byte) error {
	if len(content) < 2 {
		return errors.New("the node closed the connection without a code")
	}
	return fmt.Errorf("the node closed the connection: %d %s", binary.BigEndian.Uint16(content), content[2:])
}

// hasMore tells whether bytes of another frame are there already.
func (w *webSocket) hasMore() bool {
	return w.reader.Buffered() > 0
}
