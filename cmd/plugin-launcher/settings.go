package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/kandev/plugin-host/launcher/web"
	"github.com/kandev/plugin-host/sdk"
)

// off is the address of a server that isn't wanted.
const off = "0"

// settings are the flags.
type settings struct {
	packageFile, signatureKeyFile string
	binary, manifestFile          string
	pluginsDir, runDir            string

	hostAddress, hostCAFile, tokenFile string

	httpListen, httpCertFile, httpKeyFile string
	platformTokenFile                     string
	webhookTimeout                        time.Duration
	healthListen                          string
}

func parse(args []string, env func(string) string, out io.Writer) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("plugin-launcher", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.StringVar(&s.packageFile, "package", "", "package `file` of the plugin, a gzipped tar")
	flags.StringVar(&s.signatureKeyFile, "signature-key-file", "", "`file` with the Ed25519 public key, PEM, that must have signed the package; empty: a signature says nothing")
	flags.StringVar(&s.binary, "binary", "", "executable `file` of a plugin that isn't packed; it runs in its own folder")
	flags.StringVar(&s.manifestFile, "manifest", "", "manifest `file` of --binary")
	flags.StringVar(&s.pluginsDir, "plugins-dir", "/var/lib/kandev-plugin", "`folder` of installed versions, of the plugin's data and of the place reached in the events; data lasts as long as it does")
	flags.StringVar(&s.runDir, "run-dir", os.TempDir(), "`folder` of sockets, with a name of at most 60 bytes")
	flags.StringVar(&s.hostAddress, "host-address", env(sdk.EnvAddress), "`address` of the Host, host:port; empty: "+sdk.EnvAddress)
	flags.StringVar(&s.hostCAFile, "host-ca-file", cmp.Or(env(sdk.EnvCAFile), sdk.DefaultCAFile), "`file` of the CA of the Host's certificate, PEM; read again for each connection")
	flags.StringVar(&s.tokenFile, "token-file", cmp.Or(env(sdk.EnvTokenFile), sdk.DefaultTokenFile), "`file` of the pod's projected token; read again for each call")
	flags.StringVar(&s.httpListen, "http-listen", ":8080", "`address` of webhooks and actions, HTTP; 0: none")
	flags.StringVar(&s.httpCertFile, "http-tls-cert-file", "", "`file` of the serving certificate, PEM; read again for each connection; empty: no TLS")
	flags.StringVar(&s.httpKeyFile, "http-tls-key-file", "", "`file` of its private key, PEM")
	flags.StringVar(&s.platformTokenFile, "platform-token-file", "", "`file` of the bearer by which the platform proves itself, another one for each installation; empty: nobody is the platform, and actions are refused")
	flags.DurationVar(&s.webhookTimeout, "webhook-timeout", web.DefaultWebhookTimeout, "how long the plugin may take to answer a webhook, 1s to "+web.MaxWebhookTimeout.String()+"; who called is told 504 then")
	flags.StringVar(&s.healthListen, "health-listen", ":8081", "`address` of /healthz and /readyz, HTTP")
	if err := flags.Parse(args); err != nil {
		return s, err //nolint:wrapcheck // it names the flag
	}
	if flags.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	err := s.check()
	return s, err
}

func (s *settings) check() error {
	switch {
	case (s.packageFile == "") == (s.binary == ""):
		return errors.New("one of --package and --binary is required")
	case (s.binary == "") != (s.manifestFile == ""):
		return errors.New("--manifest goes with --binary")
	case s.binary != "" && s.signatureKeyFile != "":
		return errors.New("--signature-key-file goes with --package: a plain file has no signature")
	case s.hostAddress == "":
		return errors.New("--host-address is required")
	case s.webhookTimeout < time.Second, s.webhookTimeout > web.MaxWebhookTimeout:
		return fmt.Errorf("--webhook-timeout is %v; it is 1s to %v", s.webhookTimeout, web.MaxWebhookTimeout)
	case (s.httpCertFile == "") != (s.httpKeyFile == ""):
		return errors.New("--http-tls-cert-file and --http-tls-key-file go together")
	case s.platformTokenFile != "" && s.httpCertFile == "" && s.httpListen != off && !isLoopback(s.httpListen):
		return errors.New("--platform-token-file needs --http-tls-cert-file, or a loopback address: a bearer isn't sent in clear")
	}
	return nil
}

// isLoopback says whether only this pod reaches an address.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
