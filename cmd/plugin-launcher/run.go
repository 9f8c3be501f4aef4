package main

import (
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
	readTime   = time.Minute
	writeTime  = 5 * time.Minute
	idleTime   = 2 * time.Minute
	// shutdownTime is what requests under way have at the end.
	shutdownTime = 5 * time.Second
	// cursorName is the file of the place reached in the events. No version has such
	// a name: one can't begin a folder's name with a dot by accident, and this is a
	// file.
	cursorName = ".events-cursor"
)

// run runs the plugin until ctx ends, or until something fails that only a new
// process can mend. Deliveries and requests end before the plugin does.
func run(ctx context.Context, s settings, log *slog.Logger) (err error) {
	token := hostlink.NewSecret(s.tokenFile)
	secrets := []*hostlink.Secret{token}
	var isPlatform func(string) bool
	if s.platformTokenFile != "" {
		platform := hostlink.NewSecret(s.platformTokenFile)
		if _, err := platform.Read(); err != nil {
			return fmt.Errorf("--platform-token-file: %w", err)
		}
		secrets, isPlatform = append(secrets, platform), platform.Is
	}
	link, err := hostlink.Dial(s.hostAddress, s.hostCAFile, token)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, link.Close()) }()
	installed, err := install(s)
	if err != nil {
		return err
	}
	manifest := installed.Manifest
	log = log.With("plugin", manifest.ID, "version", manifest.Version)
	log.Info("The plugin is installed", "signed", installed.Signed, "folder", installed.Dir)

	config := process.Config{
		Program: installed.Executable, Dir: installed.Dir, Env: process.Environment(os.Environ(), installed.DataDir),
		SocketDir: s.runDir, Host: link.Server, Log: log, Secrets: values(secrets),
	}
	supervisor := &supervise.Supervisor{
		Log: log, PingInterval: supervise.PingInterval, Backoff: supervise.Backoff(),
		Start: func(ctx context.Context) (supervise.Process, error) {
			started, err := process.Start(ctx, config)
			if err != nil {
				return nil, err
			}
			return started, nil
		},
	}
	server := &web.Server{Manifest: manifest, Plugin: supervisor.Current, IsPlatform: isPlatform, Log: log}

	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- supervisor.Run(running) }()
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
	if len(manifest.Capabilities.Events) > 0 {
		follower := &relay.Relay{
			Host: link.Conn(), Plugin: supervisor.Wait, Patterns: manifest.Capabilities.Events, Log: log, RetryDelays: relay.RetryDelays(),
			CursorFile: filepath.Join(installed.StateDir, cursorName),
		}
		group.Go(func() error { return follower.Run(serving) })
	}
	group.Go(func() error { return serve(serving, "health", s.healthListen, nil, server.Health(), log) })
	if s.httpListen != off {
		group.Go(func() error { return serve(serving, "plugin", s.httpListen, s.certificates(), server.Handler(), log) })
	}
	err = group.Wait()
	stop()
	return errors.Join(err, <-ended)
}

// install opens the package, or takes the plain files.
func install(s settings) (pack.Installed, error) {
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

// values returns what a plugin's output must not hold.
func values(secrets []*hostlink.Secret) func() []string {
	return func() []string {
		var all []string
		for _, secret := range secrets {
			all = append(all, secret.Values()...)
		}
		return all
	}
}

// certificates returns the settings of TLS, nil for none.
func (s *settings) certificates() *tls.Config {
	if s.httpCertFile == "" {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(s.httpCertFile, s.httpKeyFile)
		if err != nil {
			return nil, fmt.Errorf("read the serving certificate: %w", err)
		}
		return &pair, nil
	}}
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
		MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
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
