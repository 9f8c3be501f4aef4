package main

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kandev/plugin-host/launcher/hostlink"
	"github.com/kandev/plugin-host/launcher/pack"
	"github.com/kandev/plugin-host/launcher/process"
	"github.com/kandev/plugin-host/launcher/relay"
	"github.com/kandev/plugin-host/launcher/supervise"
	"github.com/kandev/plugin-host/launcher/web"
)

const (
	headerTime = 10 * time.Second
	// readTime and writeTime are for what a handler doesn't bound itself.
	readTime  = time.Minute
	writeTime = web.MaxWebhookTimeout + 2*web.TransferTime
	idleTime  = 2 * time.Minute
	// shutdownTime is what requests under way have at the end.
	shutdownTime = 5 * time.Second
	// cursorName is the file of the place reached in the events. No version begins
	// with a dot.
	cursorName = ".events-cursor"
)

// secrets are what the launcher knows and must not tell.
type secrets struct {
	// token is the pod's, for the Host.
	token *hostlink.Secret
	// platform is the platform's bearer; nil: nobody is the platform.
	platform *hostlink.Secret
}

func secretsOf(s *settings) secrets {
	known := secrets{token: hostlink.NewSecret(s.tokenFile)}
	if s.platformTokenFile != "" {
		known.platform = hostlink.NewSecret(s.platformTokenFile)
	}
	return known
}

// values are the texts that no log may hold, the longest first: one may begin with
// another, as after a rotation.
func (s secrets) values() []string {
	all := slices.Clone(s.token.Values())
	if s.platform != nil {
		all = append(all, s.platform.Values()...)
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return all
}

// run runs the plugin until ctx ends, or until something fails that only a new
// process can mend. It is healthy while the package is still being opened, which
// a slow disk can make long.
func run(ctx context.Context, s *settings, known secrets, log *slog.Logger) (err error) {
	if known.platform != nil {
		if _, err := known.platform.Read(); err != nil {
			return fmt.Errorf("--platform-token-file: %w", err)
		}
	}
	certificates, err := s.certificates()
	if err != nil {
		return err
	}
	link, err := hostlink.Dial(s.hostAddress, s.hostCAFile, known.token)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, link.Close()) }()
	supervisor := &supervise.Supervisor{Log: log, PingInterval: supervise.PingInterval, Backoff: supervise.Backoff()}
	group, serving := errgroup.WithContext(ctx)
	group.Go(func() error {
		return serve(serving, "health", s.healthListen, nil, web.Health(supervisor.Current), log)
	})
	group.Go(func() error {
		installed, err := installUntil(serving, s)
		if err != nil || serving.Err() != nil {
			return err
		}
		log := log.With("plugin", installed.Manifest.ID, "version", installed.Manifest.Version)
		log.Info("The plugin is installed", "signed", installed.Signed, "folder", installed.Dir)
		supervisor.Log = log
		return runPlugin(serving, s, &plugin{
			Installed: installed, supervisor: supervisor, secrets: known, link: link, certificates: certificates, log: log,
		})
	})
	return group.Wait() //nolint:wrapcheck // our own
}

// plugin is an installed plugin, and what it takes to run it.
type plugin struct {
	pack.Installed
	supervisor   *supervise.Supervisor
	secrets      secrets
	link         *hostlink.Link
	certificates *tls.Config
	log          *slog.Logger
}

// runPlugin runs it until ctx ends. Deliveries and requests end before the plugin
// does.
func runPlugin(ctx context.Context, s *settings, p *plugin) error {
	orphans := process.Adopt(p.log)
	config := process.Config{
		Program: p.Executable, Dir: p.Dir, Env: process.Environment(os.Environ(), p.DataDir),
		SocketDir: s.runDir, Host: p.link.Server, Log: p.log, Secrets: p.secrets.values, Orphans: orphans,
	}
	p.supervisor.Start = func(ctx context.Context) (supervise.Process, error) {
		started, err := process.Start(ctx, config)
		if err != nil {
			return nil, err
		}
		return started, nil
	}
	server := &web.Server{
		Manifest: p.Manifest, Plugin: p.supervisor.Current, WebhookTimeout: s.webhookTimeout, Log: p.log,
	}
	if p.secrets.platform != nil {
		server.IsPlatform = p.secrets.platform.Is
	}

	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	go orphans.Run(running)
	ended := make(chan error, 1)
	go func() { ended <- p.supervisor.Run(running) }()
	group, serving := errgroup.WithContext(ctx)
	group.Go(func() error {
		select {
		case <-serving.Done():
			return nil
		case err := <-ended:
			ended <- nil // for who waits below
			return err
		}
	})
	if len(p.Manifest.Capabilities.Events) > 0 {
		follower := &relay.Relay{
			Host: p.link.Conn(), Plugin: p.supervisor.Wait, Patterns: p.Manifest.Capabilities.Events, Log: p.log,
			RetryDelays: relay.RetryDelays(), CursorFile: filepath.Join(p.StateDir, cursorName),
		}
		group.Go(func() error { return follower.Run(serving) })
	}
	if s.httpListen != off {
		group.Go(func() error {
			return serve(serving, "plugin", s.httpListen, p.certificates, server.Handler(), p.log)
		})
	}
	err := group.Wait()
	stop()
	return errors.Join(err, <-ended)
}

// installUntil installs until ctx ends, at the latest. What is half unpacked then, the
// next launcher removes.
func installUntil(ctx context.Context, s *settings) (pack.Installed, error) {
	type result struct {
		installed pack.Installed
		err       error
	}
	done := make(chan result, 1)
	go func() {
		installed, err := install(s)
		done <- result{installed, err}
	}()
	select {
	case r := <-done:
		return r.installed, r.err
	case <-ctx.Done():
		return pack.Installed{}, nil
	}
}

// install opens the package, or takes the plain files.
func install(s *settings) (pack.Installed, error) {
	if s.binary != "" {
		return pack.Plain(s.pluginsDir, s.binary, s.manifestFile)
	}
	var key ed25519.PublicKey
	if s.signatureKeyFile != "" {
		var err error
		if key, err = pack.PublicKey(s.signatureKeyFile); err != nil {
			return pack.Installed{}, fmt.Errorf("--signature-key-file: %w", err)
		}
	}
	return pack.Install(s.pluginsDir, s.packageFile, key)
}

// certificates returns the settings of TLS, nil for none. The files are read for
// each connection, as they may be rotated, and once before, to tell what is wrong.
func (s *settings) certificates() (*tls.Config, error) {
	if s.httpCertFile == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	read := func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(s.httpCertFile, s.httpKeyFile)
		if err != nil {
			return nil, fmt.Errorf("read the serving certificate: %w", err)
		}
		return &pair, nil
	}
	if _, err := read(nil); err != nil {
		return nil, fmt.Errorf("--http-tls-cert-file and --http-tls-key-file: %w", err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: read}, nil
}

// serve serves until ctx ends, and lets requests under way end.
func serve(
	ctx context.Context, name, address string, certificates *tls.Config, handler http.Handler, log *slog.Logger,
) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", address, err)
	}
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTime, ReadTimeout: readTime, WriteTimeout: writeTime, IdleTimeout: idleTime,
		MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(complaintsTo(log), slog.LevelWarn),
	}
	if certificates != nil {
		listener = tls.NewListener(listener, certificates)
	}
	log.Info("It serves", "server", name, "address", listener.Addr().String())
	shut := make(chan struct{})
	go func() {
		defer close(shut)
		<-ctx.Done()
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
		defer cancel()
		if server.Shutdown(ending) != nil {
			_ = server.Close() // what is still under way is broken off
		}
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve on %s: %w", address, err)
	}
	<-shut
	return nil
}
