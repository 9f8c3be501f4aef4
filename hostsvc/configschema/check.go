package configschema

import (
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"

	openapierrors "k8s.io/kube-openapi/pkg/validation/errors"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"

	"github.com/kandev/plugin-host/contract"
)

// Check returns nil for a configuration that fits, and otherwise its first fault, by
// name. config is the JSON text of an object, or nothing for the empty one; secrets
// are the properties whose values are given by reference. A fault never shows a
// secret.
func (s *Schema) Check(config []byte, secrets []string) *contract.FieldError {
	values := map[string]any{}
	if len(config) > 0 {
		var fault *contract.FieldError
		if values, fault = object(fieldConfig, config); fault != nil {
			return fault
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if s != nil && s.secrets[name] {
			return wrong(fieldConfig+"."+name, "is a secret: refer to it in %s and take the value out", fieldRefs)
		}
	}
	for _, name := range secrets {
		field := fieldRefs + "[" + name + "]"
		if _, twice := values[name]; twice {
			return wrong(field, "has a value in %s too", fieldConfig)
		}
		if s != nil && s.given && !s.secrets[name] {
			return wrong(field, "is no secret of the schema")
		}
	}
	if s == nil || !s.given {
		return nil
	}
	for _, name := range s.required {
		if s.secrets[name] && !slices.Contains(secrets, name) {
			return wrong(fieldRefs, "%s is required and missing", name)
		}
	}
	for _, name := range secrets {
		values[name] = ""
	}
	result := validate.NewSchemaValidator(&s.checked, nil, fieldConfig, strfmt.Default).Validate(values)
	if !result.HasErrors() {
		return nil
	}
	return first(result.Errors)
}

// named finds the field that a fault is about: some name it in their text alone.
var named = regexp.MustCompile(`"?(spec\.config[^\s"]*)"?`)

// first is the fault to begin with, by the order of fields.
func first(faults []error) *contract.FieldError {
	var found *contract.FieldError
	for _, err := range faults {
		fault := faultOf(err)
		if found == nil || fault.Field < found.Field || fault.Field == found.Field && fault.Detail < found.Detail {
			found = fault
		}
	}
	return found
}

func faultOf(err error) *contract.FieldError {
	fault := wrong(fieldConfig, "%s", err.Error())
	var typed *openapierrors.Validation
	if errors.As(err, &typed) && strings.HasPrefix(typed.Name, fieldConfig) {
		fault.Field = typed.Name
	}
	// A member that may not be there is blamed on its object.
	if match := named.FindStringSubmatch(fault.Detail); len(match) == 2 && strings.HasPrefix(match[1], fault.Field) {
		fault.Field = match[1]
	}
	fault.Detail = strings.TrimPrefix(fault.Detail, fault.Field+" in body ")
	fault.Detail = strings.TrimPrefix(fault.Detail, `"`+fault.Field+`" `)
	fault.Detail = strings.TrimSuffix(fault.Detail, " in "+fault.Field)
	return fault
}
