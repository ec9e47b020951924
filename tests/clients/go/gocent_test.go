// Package clients tests the API through gocent, Centrifugo's library for Go, which speaks the form of older clients; and TLS with clients
// of Go, the SDK centrifuge-go among them.
package clients

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"testing"

	"github.com/centrifugal/gocent/v3"
)

var background = context.Background()

func client(address, key string) *gocent.Client {
	return gocent.New(gocent.Config{Addr: "http://" + address + "/api", Key: key, HTTPClient: &http.Client{Timeout: patience}})
}

// must is a result without an error.
func must[T any](t *testing.T) func(T, error) T {
	return func(result T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
}

func equal(t *testing.T, found, expected any) {
	t.Helper()
	if !reflect.DeepEqual(found, expected) {
		t.Fatalf("%#v, not %#v", found, expected)
	}
}

func none(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestPublications(t *testing.T) {
	address := serve(t)
	api, reader := client(address, "k"), visit(t, address, "chat:index")
	first := must[gocent.PublishResult](t)(api.Publish(background, "chat:index", []byte(`{"n":1}`)))
	equal(t, first.Offset, uint64(1))
	skipped := must[gocent.PublishResult](t)(api.Publish(background, "chat:index", []byte(`2`), gocent.WithSkipHistory(true)))
	equal(t, skipped, gocent.PublishResult{})
	sent := must[gocent.BroadcastResult](t)(api.Broadcast(background, []string{"chat:index", "nowhere:a"}, []byte(`"three"`)))
	equal(t, sent.Responses[0].Result.Offset, uint64(2))
	equal(t, sent.Responses[1].Error.Code, 102)
	for _, data := range []any{map[string]any{"n": 1.0}, 2.0, "three"} {
		equal(t, reader.push("pub")["pub"].(map[string]any)["data"], data)
	}

	history := func(options ...gocent.HistoryOption) []uint64 {
		found := must[gocent.HistoryResult](t)(api.History(background, "chat:index", options...))
		equal(t, found.Offset, uint64(2))
		offsets := []uint64{}
		for _, publication := range found.Publications {
			offsets = append(offsets, publication.Offset)
		}
		return offsets
	}
	equal(t, history(), []uint64{})
	equal(t, history(gocent.WithLimit(gocent.NoLimit)), []uint64{1, 2})
	equal(t, history(gocent.WithLimit(1), gocent.WithReverse(true)), []uint64{2})
	since := &gocent.StreamPosition{Offset: 1, Epoch: first.Epoch}
	equal(t, history(gocent.WithLimit(10), gocent.WithSince(since)), []uint64{2})
	none(t, api.HistoryRemove(background, "chat:index"))
	equal(t, history(gocent.WithLimit(gocent.NoLimit)), []uint64{})
}

func TestWhoIsThere(t *testing.T) {
	address := serve(t)
	api, one, _ := client(address, "k"), visit(t, address, "chat:index"), visit(t, address, "chat:other")
	there := must[gocent.PresenceResult](t)(api.Presence(background, "chat:index"))
	equal(t, there.Presence, map[string]gocent.ClientInfo{one.id: {Client: one.id}})
	stats := must[gocent.PresenceStatsResult](t)(api.PresenceStats(background, "chat:index"))
	equal(t, stats, gocent.PresenceStatsResult{NumUsers: 1, NumClients: 1})
	equal(t, len(must[gocent.ChannelsResult](t)(api.Channels(background)).Channels), 2)
	some := must[gocent.ChannelsResult](t)(api.Channels(background, gocent.WithPattern("chat:i*")))
	equal(t, some.Channels, map[string]gocent.ChannelInfo{"chat:index": {}})
	node := must[gocent.InfoResult](t)(api.Info(background)).Nodes[0]
	equal(t, []int{node.NumClients, node.NumUsers, node.NumChannels}, []int{2, 1, 2})
}

func TestWhatIsDoneToUsers(t *testing.T) {
	address := serve(t)
	api, one, stays := client(address, "k"), visit(t, address), visit(t, address)
	epoch := must[gocent.PublishResult](t)(api.Publish(background, "chat:room", []byte(`"missed"`))).Epoch
	none(t, api.Subscribe(background, "chat:room", "",
		gocent.WithSubscribeClient(one.id), gocent.WithSubscribeInfo(json.RawMessage(`{"role":"guest"}`)),
		gocent.WithSubscribeData(json.RawMessage(`{"topic":"tea"}`)), gocent.WithPresence(true), gocent.WithJoinLeave(true),
		gocent.WithPosition(true), gocent.WithRecover(true), gocent.WithRecoverSince(&gocent.StreamPosition{Epoch: epoch})))
	told := one.push("subscribe")["subscribe"].(map[string]any)
	equal(t, told["data"], map[string]any{"topic": "tea"})
	equal(t, told["recoverable"], true)
	equal(t, one.push("pub")["pub"].(map[string]any)["data"], "missed")
	there := must[gocent.PresenceResult](t)(api.Presence(background, "chat:room"))
	equal(t, string(there.Presence[one.id].ChanInfo), `{"role":"guest"}`)
	none(t, api.Unsubscribe(background, "chat:room", "", gocent.WithUnsubscribeClient(one.id)))
	equal(t, one.push("unsubscribe")["channel"], "chat:room")

	none(t, api.Disconnect(background, "", gocent.WithDisconnectClientWhitelist([]string{stays.id}),
		gocent.WithDisconnect(&gocent.Disconnect{Code: 4000, Reason: "come back", Reconnect: true})))
	code, reason := one.closed()
	equal(t, code, uint16(4000))
	equal(t, reason, "come back")
	none(t, api.Disconnect(background, "", gocent.WithDisconnectClient(stays.id)))
	code, _ = stays.closed()
	equal(t, code, uint16(3503))
}

func TestManyCommandsAtOnce(t *testing.T) {
	address := serve(t)
	api := client(address, "k")
	pipe := api.Pipe()
	none(t, pipe.AddPublish("chat:index", []byte(`1`)))
	none(t, pipe.AddPublish("nowhere:a", []byte(`1`)))
	none(t, pipe.AddBroadcast([]string{"chat:index"}, []byte(`2`)))
	none(t, pipe.AddSubscribe("chat:index", "42"))
	none(t, pipe.AddUnsubscribe("chat:index", "42"))
	none(t, pipe.AddDisconnect("42"))
	none(t, pipe.AddPresence("chat:index"))
	none(t, pipe.AddPresenceStats("chat:index"))
	none(t, pipe.AddHistory("chat:index", gocent.WithLimit(gocent.NoLimit)))
	none(t, pipe.AddHistoryRemove("chat:index"))
	none(t, pipe.AddChannels())
	none(t, pipe.AddInfo())
	replies := must[[]gocent.Reply](t)(api.SendPipe(background, pipe))
	for index, reply := range replies {
		if (reply.Error != nil) != (index == 1) {
			t.Fatalf("%d: %v %s", index, reply.Error, reply.Result)
		}
	}
	var history gocent.HistoryResult
	none(t, json.Unmarshal(replies[8].Result, &history))
	equal(t, len(history.Publications), 2)
}

func TestErrors(t *testing.T) {
	address := serve(t)
	_, err := client(address, "k").Publish(background, "nowhere:a", []byte(`1`))
	var refused *gocent.Error
	if !errors.As(err, &refused) || refused.Code != 102 {
		t.Fatalf("%v", err)
	}
	_, err = client(address, "k").History(background, "plain")
	if !errors.As(err, &refused) || refused.Code != 108 {
		t.Fatalf("%v", err)
	}
	_, err = client(address, "other").Info(background)
	var status gocent.ErrStatusCode
	if !errors.As(err, &status) || status.Code != 401 {
		t.Fatalf("%v", err)
	}
}
