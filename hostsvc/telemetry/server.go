package telemetry

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"

	metricsfilters "sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/auditlog"
	"github.com/kandev/plugin-host/hostsvc/authority"
)

// Archive is the history that was pruned from the API.
type Archive interface {
	// ArchivedEvents lists at most limit archived events of a key above a
	// revision, in order.
	ArchivedEvents(ctx context.Context, key authority.Key, after uint64, limit int) ([]authority.Event, error)
}

// ServerConfig is what the server of metrics and history is made of.
type ServerConfig struct {
	// Listen is its address; "0" is none.
	Listen string
	// GetCertificate is the serving certificate.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	Archive        Archive
	Log            *slog.Logger
}

// Server returns the options of a manager's metrics server: HTTPS only, /metrics
// and the archived history, each for whom the API server vouches and lets `get`
// the path as a nonResourceURL. Its identity needs `create` on
// `tokenreviews.authentication.k8s.io` and
// `subjectaccessreviews.authorization.k8s.io`. A permission that was taken away
// works for up to five minutes more.
func Server(config ServerConfig) metricsserver.Options {
	return metricsserver.Options{
		BindAddress: config.Listen, SecureServing: true,
		FilterProvider: metricsfilters.WithAuthenticationAndAuthorization,
		TLSOpts: []func(*tls.Config){func(c *tls.Config) {
			c.MinVersion, c.GetCertificate = tls.VersionTLS13, config.GetCertificate
		}},
		ExtraHandlers: map[string]http.Handler{auditlog.Path: &history{archive: config.Archive, log: config.Log}},
	}
}

// historyPage is how many events are in memory at once.
const historyPage = 200

// history answers GET ?installation=&workspace=[&after=] with the archived
// events of one installation in one workspace above a revision, as JSON lines.
type history struct {
	archive Archive
	log     *slog.Logger
}

// ServeHTTP implements http.Handler.
func (h *history) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if request.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "only GET is served", http.StatusMethodNotAllowed)
		return
	}
	key, after, err := asked(request)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for began := false; ; {
		events, err := h.archive.ArchivedEvents(request.Context(), key, after, historyPage)
		if err == nil && !began {
			began = true
			w.Header().Set("Content-Type", auditlog.ContentType)
			w.Header().Set("Cache-Control", "no-store")
			w.WriteHeader(http.StatusOK)
		}
		for i := 0; i < len(events) && err == nil; i++ {
			err = auditlog.Encode(w, events[i])
			after = events[i].Row.Revision
		}
		if err != nil {
			if request.Context().Err() == nil {
				h.log.ErrorContext(request.Context(), "The archived history could not be sent", "installation", key.InstallationID,
					"workspace", key.WorkspaceID, "after", after, "error", err)
			}
			if began {
				// A client must not take a part for the whole.
				panic(http.ErrAbortHandler)
			}
			http.Error(w, "the archived history can't be read now", http.StatusInternalServerError)
			return
		}
		if len(events) < historyPage {
			return
		}
	}
}

// asked reads the query. An error names its parameter.
func asked(request *http.Request) (key authority.Key, after uint64, err error) {
	query := request.URL.Query()
	known := map[string]*string{"installation": &key.InstallationID, "workspace": &key.WorkspaceID, "after": new(string)}
	for name, values := range query {
		text, ok := known[name]
		if !ok {
			return key, 0, fmt.Errorf("%s: there is no such parameter", name)
		}
		if len(values) != 1 {
			return key, 0, fmt.Errorf("%s: is given more than once", name)
		}
		*text = values[0]
	}
	for _, name := range []string{"installation", "workspace"} {
		if fault := contract.CheckIdentifier(name, *known[name]); fault != nil {
			return key, 0, fault
		}
	}
	if text := *known["after"]; text != "" {
		if after, err = strconv.ParseUint(text, 10, 63); err != nil {
			return key, 0, errors.New("after: is no revision")
		}
	}
	return key, after, nil
}
