// Command plugin is a Kandev plugin as its author would write one without an
// SDK: with go-plugin, gRPC and the generated protocol, and nothing of this
// project. The tests of the launcher run it.
//
// Events are counted in the Host's state, under "event.<type>". Webhooks and
// event types named crash, refuse and the like make it misbehave.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

const (
	maxMessage = 17 << 20
	hostStream = 1
	giveUp     = 30 * time.Second
)

func main() {
	if os.Getenv("SAMPLE_FAILS") != "" {
		fmt.Fprintln(os.Stderr, "the sample fails as it was told to")
		os.Exit(3)
	}
	if socket := os.Getenv("SAMPLE_SILENT"); socket != "" {
		if err := silent(socket); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
	}
	s := &sample{ready: make(chan struct{})}
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: goplugin.HandshakeConfig{
			ProtocolVersion: 1, MagicCookieKey: "KANDEV_PLUGIN", MagicCookieValue: "kandev-plugin-v1",
		},
		Plugins: goplugin.PluginSet{"plugin": &served{sample: s}},
		GRPCServer: func(options []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(options, grpc.MaxRecvMsgSize(maxMessage))...)
		},
	})
}

// silent says that it serves at a socket, and answers nobody there.
func silent(socket string) error {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	fmt.Printf("1|1|unix|%s|grpc|\n", socket)
	select {}
}

type served struct {
	goplugin.NetRPCUnsupportedPlugin
	sample *sample
}

// GRPCServer begins to dial the Host before anybody can accept.
func (s *served) GRPCServer(broker *goplugin.GRPCBroker, server *grpc.Server) error { //nolint:unparam // go-plugin's interface
	pluginv1.RegisterPluginServer(server, s.sample)
	go s.sample.dial(broker)
	return nil
}

func (*served) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("a plugin is no client of plugins")
}

type sample struct {
	pluginv1.UnimplementedPluginServer

	ready chan struct{}
	host  pluginv1.HostClient
}

func (s *sample) dial(broker *goplugin.GRPCBroker) {
	pause := 100 * time.Millisecond
	for begin := time.Now(); time.Since(begin) < giveUp; pause = min(2*pause, 2*time.Second) {
		if conn, err := broker.Dial(hostStream); err == nil {
			s.host = pluginv1.NewHostClient(conn)
			close(s.ready)
			return
		}
		<-time.After(pause)
	}
}

func (s *sample) hostClient(ctx context.Context) (pluginv1.HostClient, error) {
	select {
	case <-s.ready:
		return s.host, nil
	case <-ctx.Done():
		return nil, errors.New("no host")
	}
}

func (s *sample) DeliverEvent(ctx context.Context, e *pluginv1.Event) (*pluginv1.EventAck, error) {
	misbehave(e.GetEventType())
	host, err := s.hostClient(ctx)
	if err != nil {
		return nil, err
	}
	before, err := host.GetState(ctx, &pluginv1.GetStateRequest{Scope: "instance", Key: "event." + e.GetEventType()})
	if err != nil {
		return nil, err
	}
	ids, _ := before.GetValue().AsMap()["ids"].([]any)
	value, err := structpb.NewStruct(map[string]any{
		"ids": append(ids, e.GetEventId()), "at": e.GetOccurredAt(), "workspace": e.GetWorkspaceId(), "payload": e.GetPayload().AsMap(),
	})
	if err != nil {
		return nil, err
	}
	_, err = host.SetState(ctx, &pluginv1.SetStateRequest{Scope: "instance", Key: "event." + e.GetEventType(), Value: value})
	if err != nil {
		return nil, err
	}
	return &pluginv1.EventAck{}, nil
}

func (s *sample) HandleWebhook(ctx context.Context, r *pluginv1.WebhookRequest) (*pluginv1.WebhookResponse, error) {
	query, err := url.ParseQuery(r.GetQuery())
	if err != nil {
		return nil, err
	}
	misbehave(query.Get("do"))
	switch query.Get("do") {
	case "about":
		folder, _ := os.Getwd()
		return answer(map[string]any{
			"pid": os.Getpid(), "folder": folder, "data": os.Getenv("KANDEV_PLUGIN_DATA_DIR"), "env": os.Environ(),
			"method": r.GetMethod(), "headers": r.GetHeaders(), "body": string(r.GetBody()),
		})
	case "write":
		name := os.Getenv("KANDEV_PLUGIN_DATA_DIR") + "/kept"
		return &pluginv1.WebhookResponse{Status: 204}, os.WriteFile(name, r.GetBody(), 0o600) //nolint:gosec // its own folder
	case "read":
		text, err := os.ReadFile(os.Getenv("KANDEV_PLUGIN_DATA_DIR") + "/kept") //nolint:gosec // its own folder
		return &pluginv1.WebhookResponse{Status: 200, Body: text}, err
	case "print":
		text, _ := os.ReadFile(query.Get("file"))
		fmt.Println("to stdout:", strings.TrimSpace(string(text)))
		fmt.Fprintln(os.Stderr, "to stderr:", strings.TrimSpace(string(text)))
		fmt.Println("long:", strings.Repeat("x", 20_000))
		return &pluginv1.WebhookResponse{Status: 204}, nil
	case "fail":
		text, _ := os.ReadFile(query.Get("file"))
		return nil, fmt.Errorf("it is %s %s", strings.TrimSpace(string(text)), strings.Repeat("long ", 10_000))
	case "state":
		return s.state(ctx, query.Get("key"))
	case "value":
		return s.value(ctx, query.Get("key"))
	case "emit":
		return s.emit(ctx, query.Get("name"))
	case "secret":
		return s.secret(ctx)
	case "tasks":
		return s.tasks(ctx)
	case "flood":
		return flood()
	case "close":
		return &pluginv1.WebhookResponse{Status: 204}, errors.Join(syscall.Close(1), syscall.Close(2))
	case "leave":
		return leave(ctx)
	case "child":
		// It holds what the plugin writes to open, and outlives it if it can.
		child := exec.Command("sleep", "600")
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		if err := child.Start(); err != nil {
			return nil, err
		}
		return answer(map[string]any{"pid": child.Process.Pid})
	}
	return &pluginv1.WebhookResponse{}, nil
}

// flood writes more than anybody reads, by lines and without an end of a line.
func flood() (*pluginv1.WebhookResponse, error) {
	line := strings.Repeat("flood ", 100) + "\n"
	for range 10_000 {
		if _, err := os.Stdout.WriteString(line); err != nil {
			return nil, err
		}
		if _, err := os.Stderr.WriteString(line); err != nil {
			return nil, err
		}
	}
	_, err := os.Stderr.WriteString(strings.Repeat("x", 4<<20))
	return &pluginv1.WebhookResponse{Status: 204}, err
}

// leave starts a process outside of the plugin's group whose parent has ended, as a
// daemon's has.
func leave(ctx context.Context) (*pluginv1.WebhookResponse, error) {
	parent := exec.CommandContext(ctx, "sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!")
	parent.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	text, err := parent.Output()
	if err != nil {
		return nil, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, err
	}
	return answer(map[string]any{"pid": pid})
}

// state counts up one value of the Host's state.
func (s *sample) state(ctx context.Context, key string) (*pluginv1.WebhookResponse, error) {
	host, err := s.hostClient(ctx)
	if err != nil {
		return nil, err
	}
	got, err := host.GetState(ctx, &pluginv1.GetStateRequest{Scope: "instance", Key: key})
	if err != nil {
		return refusal(err)
	}
	count, _ := got.GetValue().AsMap()["count"].(float64)
	value, err := structpb.NewStruct(map[string]any{"count": count + 1})
	if err != nil {
		return nil, err
	}
	if _, err := host.SetState(ctx, &pluginv1.SetStateRequest{Scope: "instance", Key: key, Value: value}); err != nil {
		return refusal(err)
	}
	return answer(map[string]any{"count": count + 1})
}

// value shows one value of the Host's state.
func (s *sample) value(ctx context.Context, key string) (*pluginv1.WebhookResponse, error) {
	host, err := s.hostClient(ctx)
	if err != nil {
		return nil, err
	}
	got, err := host.GetState(ctx, &pluginv1.GetStateRequest{Scope: "instance", Key: key})
	if err != nil {
		return refusal(err)
	}
	return answer(got.GetValue().AsMap())
}

func (s *sample) emit(ctx context.Context, name string) (*pluginv1.WebhookResponse, error) {
	host, err := s.hostClient(ctx)
	if err != nil {
		return nil, err
	}
	payload, err := structpb.NewStruct(map[string]any{"name": name})
	if err != nil {
		return nil, err
	}
	if _, err := host.EmitEvent(ctx, &pluginv1.EmitEventRequest{EventName: name, Payload: payload}); err != nil {
		return refusal(err)
	}
	return &pluginv1.WebhookResponse{Status: 204}, nil
}

func (s *sample) secret(ctx context.Context) (*pluginv1.WebhookResponse, error) {
	host, err := s.hostClient(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := host.GetSecret(ctx, &pluginv1.GetSecretRequest{Key: "any"}); err != nil {
		return refusal(err)
	}
	return &pluginv1.WebhookResponse{Status: 204}, nil
}

func (s *sample) tasks(ctx context.Context) (*pluginv1.WebhookResponse, error) {
	host, err := s.hostClient(ctx)
	if err != nil {
		return nil, err
	}
	got, err := host.ListTasks(ctx, &pluginv1.ListTasksRequest{})
	if err != nil {
		return refusal(err)
	}
	return answer(map[string]any{"tasks": len(got.GetTasks())})
}

// refusal shows the Host's status to who asks over HTTP.
func refusal(err error) (*pluginv1.WebhookResponse, error) {
	return &pluginv1.WebhookResponse{Status: 409, Body: []byte(status.Convert(err).Code().String() + ": " + status.Convert(err).Message())}, nil
}

func (s *sample) HandleAction(_ context.Context, r *pluginv1.PluginActionRequest) (*pluginv1.PluginActionResponse, error) {
	text, err := json.Marshal(map[string]any{
		"key": r.GetActionKey(), "actor": r.GetContext().GetActorId(), "workspace": r.GetContext().GetWorkspaceId(), "body": string(r.GetBody()),
	})
	return &pluginv1.PluginActionResponse{Body: text, Headers: map[string]string{"Content-Type": "application/json"}}, err
}

func answer(value map[string]any) (*pluginv1.WebhookResponse, error) {
	text, err := json.Marshal(value)
	return &pluginv1.WebhookResponse{Status: 200, Body: text}, err
}

// misbehave does what plugins shouldn't.
func misbehave(how string) {
	switch how {
	case "crash":
		os.Exit(3)
	case "hang":
		select {} // whoever waits, and for how long
	case "freeze":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		select {} // the other threads stop a moment later
	}
}
