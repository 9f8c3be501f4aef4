// Command unmodified-plugin is a plugin as it is written for Kandev: with go-plugin,
// gRPC and the protocol, and nothing of this project. It knows no cluster, token or
// SDK. The demo runs it through plugin-launcher, as its pod would.
//
// It counts in the Host's state, and keeps there which tasks it was told of. Its
// webhook "hook" has the queries do=count, do=told and do=secret.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

const (
	// hostStream is the broker's stream that leads to the Host.
	hostStream = 1
	// dialTime bounds how long the Host may take to be there.
	dialTime = 30 * time.Second
)

func main() {
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: goplugin.HandshakeConfig{
			ProtocolVersion: 1, MagicCookieKey: "KANDEV_PLUGIN", MagicCookieValue: "kandev-plugin-v1",
		},
		Plugins:    goplugin.PluginSet{"plugin": &served{counter: &counter{ready: make(chan struct{})}}},
		GRPCServer: goplugin.DefaultGRPCServer,
	})
}

type served struct {
	goplugin.NetRPCUnsupportedPlugin
	counter *counter
}

// GRPCServer begins to dial the Host before it is there.
func (s *served) GRPCServer(broker *goplugin.GRPCBroker, server *grpc.Server) error { //nolint:unparam // go-plugin's interface
	pluginv1.RegisterPluginServer(server, s.counter)
	go s.counter.dial(broker)
	return nil
}

// GRPCClient implements goplugin.GRPCPlugin.
func (*served) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("a plugin is no client of plugins")
}

type counter struct {
	pluginv1.UnimplementedPluginServer

	ready chan struct{}
	host  pluginv1.HostClient
}

func (c *counter) dial(broker *goplugin.GRPCBroker) {
	for begin := time.Now(); time.Since(begin) < dialTime; <-time.After(100 * time.Millisecond) {
		if conn, err := broker.Dial(hostStream); err == nil {
			c.host = pluginv1.NewHostClient(conn)
			close(c.ready)
			return
		}
	}
}

func (c *counter) get(ctx context.Context, key string) (map[string]any, error) {
	select {
	case <-c.ready:
	case <-ctx.Done():
		return nil, errors.New("the Host is not there")
	}
	got, err := c.host.GetState(ctx, &pluginv1.GetStateRequest{Scope: "instance", Key: key})
	if err != nil {
		return nil, err
	}
	if value := got.GetValue().AsMap(); value != nil {
		return value, nil
	}
	return map[string]any{}, nil
}

func (c *counter) set(ctx context.Context, key string, value map[string]any) error {
	object, err := structpb.NewStruct(value)
	if err != nil {
		return err
	}
	_, err = c.host.SetState(ctx, &pluginv1.SetStateRequest{Scope: "instance", Key: key, Value: object})
	return err
}

// DeliverEvent keeps the titles of the tasks it is told of, by their IDs: an event may
// come twice.
func (c *counter) DeliverEvent(ctx context.Context, e *pluginv1.Event) (*pluginv1.EventAck, error) {
	told, err := c.get(ctx, "told")
	if err != nil {
		return nil, err
	}
	task := e.GetPayload().AsMap()
	if id, ok := task["task_id"].(string); ok {
		told[id] = task["title"]
	}
	return &pluginv1.EventAck{}, c.set(ctx, "told", told)
}

// HandleWebhook answers its user.
func (c *counter) HandleWebhook(ctx context.Context, r *pluginv1.WebhookRequest) (*pluginv1.WebhookResponse, error) {
	query, err := url.ParseQuery(r.GetQuery())
	if err != nil {
		return nil, err
	}
	value := map[string]any{}
	switch query.Get("do") {
	case "count":
		if value, err = c.get(ctx, "count"); err == nil {
			count, _ := value["count"].(float64)
			value["count"] = count + 1
			err = c.set(ctx, "count", value)
		}
	case "told":
		value, err = c.get(ctx, "told")
	case "secret":
		if _, err = c.get(ctx, "count"); err == nil {
			_, err = c.host.GetSecret(ctx, &pluginv1.GetSecretRequest{Key: "any"})
		}
	}
	if err != nil {
		text := status.Code(err).String() + ": " + status.Convert(err).Message()
		return &pluginv1.WebhookResponse{Status: 409, Body: []byte(text)}, nil
	}
	text, err := json.Marshal(value)
	return &pluginv1.WebhookResponse{Status: 200, Body: text}, err
}
