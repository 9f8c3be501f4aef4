package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// What both sides of the handshake were built with.
const (
	protocolVersion = 1
	cookieKey       = "KANDEV_PLUGIN"
	cookieValue     = "kandev-plugin-v1"
	pluginName      = "plugin"
	hostStream      = 1

	// MaxMessageBytes bounds a message to the child and from it.
	MaxMessageBytes = 17 << 20
	// StartTimeout is how long a child may take to say where it serves, and again
	// to be reached there, to take the Host and to answer its first ping.
	StartTimeout = 30 * time.Second
	// pingTimeout is how long a ping may take.
	pingTimeout = 10 * time.Second
	// endTime is how long a child that is told to end may take.
	endTime = 5 * time.Second
	// maxSocketDir leaves room for the names of sockets in a path, 108 bytes.
	maxSocketDir = 60
)

// Config says what to run.
type Config struct {
	// Program is the executable, Dir its working directory.
	Program, Dir string
	// Env is the child's environment, as Environment makes it.
	Env []string
	// SocketDir is where the sockets between the two are, in a folder of their own;
	// it exists and can be written to. At most 60 bytes.
	SocketDir string
	// Host makes the server of the Host service that this child talks to.
	Host func(...grpc.ServerOption) *grpc.Server
	// Log takes what the child writes. Secrets returns the values that it must not
	// hold.
	Log     *slog.Logger
	Secrets func() []string
	// Orphans takes what the child leaves when it ends; nil: what has left its group
	// outlives it.
	Orphans *Orphans
	// StartTimeout replaces StartTimeout.
	StartTimeout time.Duration
}

// Plugin is a running child.
type Plugin struct {
	client *goplugin.Client
	conn   *grpc.ClientConn
	child  *child
	out    *output
	// streams are all writers of out.
	streams []*lines
	host    *grpc.Server
	close   func()
}

// Start starts a child and returns once it answers. A child that fails before
// is ended. ctx bounds the start only.
func Start(ctx context.Context, c Config) (*Plugin, error) {
	if len(c.SocketDir) > maxSocketDir {
		return nil, fmt.Errorf("the folder for sockets, %s, has a name longer than %d bytes", c.SocketDir, maxSocketDir)
	}
	p := &Plugin{out: newOutput(c.Log, c.Secrets)}
	p.close = sync.OnceFunc(p.end)
	running, returned := make(chan *child, 1), make(chan struct{})
	defer close(returned)
	p.client = goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig: goplugin.HandshakeConfig{
			ProtocolVersion: protocolVersion, MagicCookieKey: cookieKey, MagicCookieValue: cookieValue,
		},
		Plugins:          goplugin.PluginSet{pluginName: &dispenser{plugin: p, host: c.Host}},
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		AutoMTLS:         true,
		SkipHostEnv:      true, // Env is all of it
		StartTimeout:     cmp.Or(c.StartTimeout, StartTimeout),
		UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: c.SocketDir},
		GRPCDialOptions: []grpc.DialOption{grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(MaxMessageBytes), grpc.MaxCallSendMsgSize(MaxMessageBytes))},
		RunnerFunc: func(_ hclog.Logger, spec *exec.Cmd, _ string) (runner.Runner, error) {
			env := slices.Concat(c.Env, spec.Env)
			prepared, err := newChild(c.Program, c.Dir, env, p.stream("stdout"), running, c.Orphans)
			if err != nil {
				return nil, err
			}
			p.child = prepared
			return prepared, nil
		},
		// What the child writes before it serves, and after.
		Stderr:              p.stream("stderr"),
		SyncStdout:          p.stream("stdout"),
		SyncStderr:          p.stream("stderr"),
		PluginLogBufferSize: MaxLineBytes,
		// All of go-plugin's own is told by errors or by the child's end.
		Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Off, Output: io.Discard}),
	})
	stop := context.AfterFunc(ctx, func() {
		select {
		case started := <-running:
			_ = started.Kill(context.WithoutCancel(ctx)) // what waits for it fails by it
		case <-returned:
		}
	})
	defer stop()
	if err := p.connect(ctx, cmp.Or(c.StartTimeout, StartTimeout)); err != nil {
		p.Close()
		return nil, errors.Join(ctx.Err(), err)
	}
	return p, nil
}

func (p *Plugin) stream(name string) *lines {
	stream := p.out.stream(name)
	p.streams = append(p.streams, stream)
	return stream
}

func (p *Plugin) connect(ctx context.Context, timeout time.Duration) error {
	if _, err := p.client.Start(); err != nil {
		return fmt.Errorf("start the plugin: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	// go-plugin bounds nothing from here on. With the child, what waits for it ends.
	stop := context.AfterFunc(ctx, func() { _ = p.child.Kill(context.WithoutCancel(ctx)) })
	defer stop()
	protocol, err := p.client.Client()
	if err == nil {
		_, err = protocol.Dispense(pluginName)
	}
	if err == nil {
		err = p.ping(ctx, grpc.WaitForReady(true))
	}
	if err != nil {
		return fmt.Errorf("connect to the plugin: %w", errors.Join(ctx.Err(), err))
	}
	return nil
}

// Conn is the connection to the child's Plugin service.
func (p *Plugin) Conn() grpc.ClientConnInterface { return p.conn }

// Ping returns nil if the child answers.
func (p *Plugin) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	return p.ping(ctx)
}

func (p *Plugin) ping(ctx context.Context, options ...grpc.CallOption) error {
	answer, err := grpc_health_v1.NewHealthClient(p.conn).Check(ctx,
		&grpc_health_v1.HealthCheckRequest{Service: goplugin.GRPCServiceName}, options...)
	if err != nil {
		return fmt.Errorf("ping the plugin: %w", err)
	}
	if answer.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		return fmt.Errorf("the plugin says that it is %v", answer.GetStatus())
	}
	return nil
}

// Done is closed when the process has ended.
func (p *Plugin) Done() <-chan struct{} { return p.child.exited }

// Err says how the process ended, once Done is closed; nil: with status 0.
func (p *Plugin) Err() error { return p.child.result }

// Close asks the child to end, kills it when it doesn't, with all that it
// started, and returns when it has. To close again does nothing.
func (p *Plugin) Close() { p.close() }

func (p *Plugin) end() {
	if p.child != nil && p.child.cmd.Process != nil {
		// Its answer isn't waited for without a bound: it may stand still.
		late := time.AfterFunc(endTime, func() { _ = p.child.Kill(context.Background()) })
		defer late.Stop()
	}
	p.client.Kill()
	if p.host != nil {
		p.host.Stop()
	}
	for _, stream := range p.streams {
		stream.end()
	}
	p.out.end()
}

// dispenser is the launcher's side of the plugin map.
type dispenser struct {
	goplugin.NetRPCUnsupportedPlugin
	plugin *Plugin
	host   func(...grpc.ServerOption) *grpc.Server
}

// GRPCServer implements goplugin.GRPCPlugin; it is the child's part.
func (*dispenser) GRPCServer(*goplugin.GRPCBroker, *grpc.Server) error {
	return errors.New("the launcher serves no plugin")
}

// GRPCClient implements goplugin.GRPCPlugin. The child dials stream 1 as soon as
// it runs, and gives up in the end: so it is accepted here, not at need.
func (d *dispenser) GRPCClient(_ context.Context, broker *goplugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	d.plugin.conn = conn
	made, returned := make(chan *grpc.Server, 1), make(chan struct{})
	go func() {
		defer close(returned)
		broker.AcceptAndServe(hostStream, func(options []grpc.ServerOption) *grpc.Server {
			server := d.host(options...)
			made <- server
			return server
		})
	}()
	select {
	case d.plugin.host = <-made:
		return conn, nil
	case <-returned: // why, it tells nobody
		return nil, errors.New("the plugin isn't where it says that it serves, or takes no Host")
	case <-d.plugin.child.exited:
		return nil, errors.New("the plugin has ended")
	}
}
