package clients

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/centrifugal/centrifuge-go"
	"github.com/centrifugal/gocent/v3"
)

// authority signs certificates that only clients of its test believe.
type authority struct {
	t           *testing.T
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	key := must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := describe("tests of Myriad")
	template.IsCA, template.KeyUsage = true, x509.KeyUsageCertSign
	der := must[[]byte](t)(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))
	return &authority{t, must[*x509.Certificate](t)(x509.ParseCertificate(der)), key}
}

func describe(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(30 * 24 * time.Hour),
	}
}

// flags have a server speak TLS with a new certificate for localhost.
func (a *authority) flags() []string {
	key := must[*ecdsa.PrivateKey](a.t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := describe("localhost")
	template.DNSNames, template.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	der := must[[]byte](a.t)(x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key))
	certificate, secret := filepath.Join(a.t.TempDir(), "own.pem"), filepath.Join(a.t.TempDir(), "own.key")
	write := func(file, kind string, bytes []byte) {
		none(a.t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}), 0o600))
	}
	write(certificate, "CERTIFICATE", der)
	write(secret, "PRIVATE KEY", must[[]byte](a.t)(x509.MarshalPKCS8PrivateKey(key)))
	return []string{"--tls-listen", "127.0.0.1:0", "--tls-certificate", certificate, "--tls-key", secret}
}

// trust is the configuration of a client that speaks one version.
func (a *authority) trust(version uint16) *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return &tls.Config{RootCAs: pool, MinVersion: version, MaxVersion: version}
}

var versions = []uint16{tls.VersionTLS13, tls.VersionTLS12}

// shake is a connection whose handshake is done.
func shake(t *testing.T, address string, config *tls.Config) *tls.Conn {
	dialer := &net.Dialer{Timeout: patience}
	socket := must[*tls.Conn](t)(tls.DialWithDialer(dialer, "tcp", address, config))
	t.Cleanup(func() { _ = socket.Close() })
	_ = socket.SetDeadline(time.Now().Add(patience))
	return socket
}

func TestTlsSessionsResume(t *testing.T) {
	authority := newAuthority(t)
	address := serveTls(t, authority.flags()...)
	for _, version := range versions {
		config := authority.trust(version)
		config.ClientSessionCache = tls.NewLRUClientSessionCache(1)
		for round := range 5 {
			socket := shake(t, address, config)
			fmt.Fprintf(socket, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
			// The ticket of TLS 1.3 comes before the answer.
			answer := must[*http.Response](t)(http.ReadResponse(bufio.NewReader(socket), nil))
			equal(t, answer.StatusCode, 200)
			state := socket.ConnectionState()
			equal(t, state.Version, version)
			equal(t, state.DidResume, round > 0)
			none(t, socket.Close())
		}
	}
}

func TestTlsEveryCipherAndSize(t *testing.T) {
	authority := newAuthority(t)
	address := serveTls(t, append(authority.flags(), "--dev", "--message-bytes-max", "1MiB", "--outbound-bytes-max", "8MiB")...)
	// Go chooses the cipher of TLS 1.3 itself.
	configs := []*tls.Config{authority.trust(tls.VersionTLS13)}
	for _, suite := range []uint16{
		tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
	} {
		config := authority.trust(tls.VersionTLS12)
		config.CipherSuites = []uint16{suite}
		configs = append(configs, config)
	}
	for _, group := range []tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384, tls.X25519MLKEM768} {
		config := authority.trust(tls.VersionTLS13)
		config.CurvePreferences = []tls.CurveID{group}
		configs = append(configs, config)
	}
	for _, config := range configs {
		v := upgrade(t, shake(t, address, config), address, "/echo")
		for _, length := range []int{0, 1, 125, 126, 16_384, 16_385, 65_535, 65_536, 1 << 20} {
			sent := make([]byte, length)
			_, _ = rand.Read(sent)
			v.send(2, sent)
			opcode, payload := v.frame()
			if opcode != 2 || !bytes.Equal(payload, sent) {
				t.Fatalf("%d bytes came back as %d, opcode %d", length, len(payload), opcode)
			}
		}
	}
}

func TestTlsGocent(t *testing.T) {
	authority := newAuthority(t)
	address := serveTls(t, authority.flags()...)
	for _, version := range versions {
		transport := &http.Transport{TLSClientConfig: authority.trust(version), ForceAttemptHTTP2: true}
		t.Cleanup(transport.CloseIdleConnections)
		api := gocent.New(gocent.Config{
			Addr: "https://" + address + "/api", Key: "k", HTTPClient: &http.Client{Timeout: patience, Transport: transport},
		})
		channel := fmt.Sprintf("chat:%d", version)
		for number := range 20 {
			sent := must[gocent.PublishResult](t)(api.Publish(background, channel, fmt.Appendf(nil, "%d", number)))
			equal(t, sent.Offset, uint64(number+1))
		}
		history := must[gocent.HistoryResult](t)(api.History(background, channel, gocent.WithLimit(gocent.NoLimit)))
		equal(t, len(history.Publications), 20)
	}
}

func TestTlsCentrifugeGo(t *testing.T) {
	authority := newAuthority(t)
	address := serveTls(t, authority.flags()...)
	transport := &http.Transport{TLSClientConfig: authority.trust(tls.VersionTLS13)}
	t.Cleanup(transport.CloseIdleConnections)
	api := gocent.New(gocent.Config{Addr: "https://" + address + "/api", Key: "k", HTTPClient: &http.Client{Transport: transport}})
	for name, make := range map[string]func(string, centrifuge.Config) *centrifuge.Client{
		"json": centrifuge.NewJsonClient, "protobuf": centrifuge.NewProtobufClient,
	} {
		for _, version := range versions {
			sdk := make("wss://"+address+"/connection/websocket", centrifuge.Config{TLSConfig: authority.trust(version)})
			t.Cleanup(sdk.Close)
			channel := fmt.Sprintf("chat:%s-%d", name, version)
			subscription := must[*centrifuge.Subscription](t)(sdk.NewSubscription(channel))
			subscribed, heard := signal(), signal()
			subscription.OnSubscribed(func(centrifuge.SubscribedEvent) { subscribed <- "" })
			subscription.OnPublication(func(event centrifuge.PublicationEvent) { heard <- string(event.Data) })
			none(t, sdk.Connect())
			none(t, subscription.Subscribe())
			await(t, subscribed)
			large := `"` + strings.Repeat("x", 50_000) + `"`
			for _, data := range []string{"1", "2", large} {
				must[gocent.PublishResult](t)(api.Publish(background, channel, []byte(data)))
				equal(t, await(t, heard), data)
			}
			there := must[gocent.PresenceStatsResult](t)(api.PresenceStats(background, channel))
			equal(t, int(there.NumClients), 1)
		}
	}
}

func signal() chan string { return make(chan string, 16) }

func await(t *testing.T, happened chan string) string {
	t.Helper()
	select {
	case what := <-happened:
		return what
	case <-time.After(patience):
		t.Fatal("it never happened")
		return ""
	}
}
