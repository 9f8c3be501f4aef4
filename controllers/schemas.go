package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/kandev/plugin-host/api/v1alpha1"
)

// schemasEvery is the time between two looks at schemas that lack a field.
const schemasEvery = 5 * time.Second

// errOldSchemas says what to do about it.
var errOldSchemas = errors.New("the CustomResourceDefinitions of the cluster are not those of this release; a platform admin applies them (the chart plugin-host-crds, or config/crd), and the Host goes on by itself")

// schemas checks that the API server knows every field of our kinds. One that
// it doesn't know it drops in silence: an approver's name, or a gate, would be
// missing from the history. Until it does, this process doesn't lead.
type schemas struct {
	client rest.Interface
	log    logr.Logger

	// current is closed once every field is known.
	current chan struct{}
	failure atomic.Pointer[error]
}

func newSchemas(config *rest.Config, log logr.Logger) (*schemas, error) {
	discovering, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for the schemas: %w", err)
	}
	return &schemas{client: discovering.RESTClient(), log: log, current: make(chan struct{})}, nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (s *schemas) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (s *schemas) Start(ctx context.Context) error {
	ticker := time.NewTicker(schemasEvery)
	defer ticker.Stop()
	for {
		err := s.check(ctx)
		if err == nil {
			close(s.current)
			return nil
		}
		if before := s.failure.Swap(&err); ctx.Err() == nil && (before == nil || (*before).Error() != err.Error()) {
			s.log.Error(err, "This process can't lead")
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// ready is a readiness check.
func (s *schemas) ready(*http.Request) error {
	select {
	case <-s.current:
		return nil
	default:
	}
	if why := s.failure.Load(); why != nil {
		return *why
	}
	return errors.New("the schemas have not been read yet")
}

// fields is the part of an OpenAPI schema that says which fields there are.
type fields struct {
	Properties map[string]*fields `json:"properties"`
	Items      *fields            `json:"items"`
	Open       bool               `json:"x-kubernetes-preserve-unknown-fields"`
}

func (s *schemas) check(ctx context.Context) error {
	text, err := s.client.Get().AbsPath("/openapi/v3/apis/" + v1alpha1.GroupVersion.String()).Do(ctx).Raw()
	if err != nil {
		return fmt.Errorf("read the schemas of our kinds: %w", err)
	}
	var served struct {
		Components struct {
			Schemas map[string]*struct {
				fields
				Kinds []metav1.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
			} `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(text, &served); err != nil {
		return fmt.Errorf("understand the schemas of our kinds: %w", err)
	}
	byKind := map[string]*fields{}
	for _, one := range served.Components.Schemas {
		for _, kind := range one.Kinds {
			byKind[kind.Kind] = &one.fields
		}
	}
	var missing []string
	for _, object := range []any{
		v1alpha1.PluginInstallation{}, v1alpha1.PluginCapabilityApproval{},
		v1alpha1.PluginCapabilityApprovalEvent{}, v1alpha1.HumanPolicy{},
	} {
		t := reflect.TypeOf(object)
		if byKind[t.Name()] == nil {
			missing = append(missing, t.Name())
			continue
		}
		for _, part := range []string{"Spec", "Status"} {
			if field, ok := t.FieldByName(part); ok {
				name, _ := jsonName(field)
				missing = append(missing, lacking(byKind[t.Name()].Properties[name], field.Type, t.Name()+"."+name)...)
			}
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%s: %w", shorten(strings.Join(missing, ", ")), errOldSchemas)
	}
	return nil
}

// lacking lists the fields of a type that a schema doesn't have.
func lacking(known *fields, t reflect.Type, path string) []string {
	if known == nil {
		return []string{path}
	}
	if known.Open {
		return nil
	}
	switch t.Kind() {
	case reflect.Pointer:
		return lacking(known, t.Elem(), path)
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return nil
		}
		return lacking(known.Items, t.Elem(), path+"[]")
	case reflect.Struct:
	default:
		return nil
	}
	if t.Implements(reflect.TypeFor[json.Marshaler]()) || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]()) {
		return nil // a time: one value
	}
	var missing []string
	for i := range t.NumField() {
		field := t.Field(i)
		name, inline := jsonName(field)
		switch {
		case inline:
			missing = append(missing, lacking(known, field.Type, path)...)
		case name != "":
			missing = append(missing, lacking(known.Properties[name], field.Type, path+"."+name)...)
		}
	}
	return missing
}

// jsonName is a field's name, "" for none.
func jsonName(field reflect.StructField) (name string, inline bool) {
	name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
	if name == "-" {
		return "", false
	}
	return name, name == "" && (field.Anonymous || strings.Contains(options, "inline"))
}
