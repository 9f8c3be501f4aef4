package configschema

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/kandev/plugin-host/contract"
)

// The bounds of a schema and of a configuration, each.
const (
	// MaxBytes bounds the JSON text.
	MaxBytes = 64 << 10
	// MaxDepth bounds the nesting of objects and lists.
	MaxDepth = 24
)

// The fields that faults name.
const (
	fieldSchema = "spec.manifest.configSchema"
	fieldConfig = "spec.config"
	fieldRefs   = "spec.secretRefs"
)

// Schema is what a configuration must be. The zero value, and nil, take every
// configuration within the bounds.
type Schema struct {
	given    bool
	checked  spec.Schema
	required []string
	secrets  map[string]bool
}

// Compile reads a schema. No text is a schema that takes everything.
func Compile(text []byte) (*Schema, *contract.FieldError) {
	s := &Schema{secrets: map[string]bool{}}
	if len(text) == 0 {
		return s, nil
	}
	root, fault := object(fieldSchema, text)
	if fault != nil {
		return nil, fault
	}
	c := compiler{secrets: s.secrets}
	checked, fault := c.schema(spot{path: fieldSchema, root: true}, root)
	if fault != nil {
		return nil, fault
	}
	if kind, ok := checked["type"]; ok && !slices.Contains(strung(kind), "object") {
		return nil, wrong(fieldSchema+".type", "must be object: a configuration is one")
	}
	s.required = strung(checked["required"])
	normal, err := json.Marshal(checked)
	if err == nil {
		err = json.Unmarshal(normal, &s.checked)
	}
	if err != nil {
		return nil, wrong(fieldSchema, "is no schema: %v", err)
	}
	s.given = true
	return s, nil
}

// Secrets lists the secret properties, in order.
func (s *Schema) Secrets() []string {
	if s == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(s.secrets))
}

// object decodes a JSON object within the bounds.
func object(field string, text []byte) (map[string]any, *contract.FieldError) {
	if len(text) > MaxBytes {
		return nil, wrong(field, "is longer than %d bytes", MaxBytes)
	}
	var decoded map[string]any
	if err := json.Unmarshal(text, &decoded); err != nil || decoded == nil {
		return nil, wrong(field, "is no object")
	}
	if deeper(decoded, MaxDepth) {
		return nil, wrong(field, "is nested deeper than %d", MaxDepth)
	}
	return decoded, nil
}

func deeper(value any, most int) bool {
	switch v := value.(type) {
	case map[string]any:
		for _, member := range v {
			if most == 0 || deeper(member, most-1) {
				return true
			}
		}
	case []any:
		for _, element := range v {
			if most == 0 || deeper(element, most-1) {
				return true
			}
		}
	}
	return false
}

func wrong(field, format string, args ...any) *contract.FieldError {
	return &contract.FieldError{Field: field, Reason: contract.ReasonMalformedPrecondition, Detail: fmt.Sprintf(format, args...)}
}

// compiler turns a schema into the one that is checked: keywords that only describe
// are left out.
type compiler struct {
	secrets map[string]bool
}

// spot is where a schema stands.
type spot struct {
	path string
	// root: it is the whole one. property is the name of the one that it is of,
	// where that is a property of the root.
	root     bool
	property *string
}

// unsupported are keywords that would check something, and that are not understood:
// to ignore one would let pass what the schema refuses.
var unsupported = []string{
	"$ref", "$dynamicRef", "$recursiveRef", "if", "then", "else", "dependencies", "dependentRequired", "dependentSchemas",
	"contains", "minContains", "maxContains", "propertyNames", "prefixItems", "additionalItems", "patternProperties",
	"unevaluatedItems", "unevaluatedProperties",
}

var types = []string{"object", "array", "string", "number", "integer", "boolean", "null"}

// checkedFormats are those of texts that are checked; others only describe.
var checkedFormats = []string{"date", "date-time", "email", "hostname", "ipv4", "ipv6", "uri", "uuid"}

// textFormats say how people edit a text.
var textFormats = []string{"agent-profile", "textarea", "password"}

func (c *compiler) schema(here spot, from map[string]any) (map[string]any, *contract.FieldError) {
	to := map[string]any{}
	for _, keyword := range slices.Sorted(maps.Keys(from)) {
		if slices.Contains(unsupported, keyword) {
			return nil, wrong(here.path+"."+keyword, "is a keyword that this Host doesn't check")
		}
		if fault := c.keyword(here, keyword, from[keyword], to); fault != nil {
			return nil, fault
		}
	}
	if fault := exclusive(here.path, from, to); fault != nil {
		return nil, fault
	}
	return to, c.text(here, from, to)
}

func (c *compiler) keyword(here spot, keyword string, value any, to map[string]any) *contract.FieldError {
	at := here.path + "." + keyword
	switch keyword {
	case "type":
		list, ok := value.([]any)
		if !ok {
			list = []any{value}
		}
		for _, one := range list {
			if name, ok := one.(string); !ok || !slices.Contains(types, name) {
				return wrong(at, "must be one of %s, or a list of them", strings.Join(types, ", "))
			}
		}
		if len(list) == 0 {
			return wrong(at, "is empty")
		}
	case "minimum", "maximum":
		if _, ok := value.(float64); !ok {
			return wrong(at, "is no number")
		}
	case "multipleOf":
		if n, ok := value.(float64); !ok || n <= 0 {
			return wrong(at, "is no number above 0")
		}
	case "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties":
		if n, ok := value.(float64); !ok || n < 0 || n != math.Trunc(n) || n > math.MaxInt32 {
			return wrong(at, "is no whole number from 0 on")
		}
	case "uniqueItems":
		if _, ok := value.(bool); !ok {
			return wrong(at, "is neither true nor false")
		}
	case "pattern":
		pattern, ok := value.(string)
		if !ok {
			return wrong(at, "is no text")
		}
		if _, err := regexp.Compile(pattern); err != nil {
			return wrong(at, "is no pattern that this Host understands (RE2): %v", err)
		}
	case "required":
		list, ok := value.([]any)
		if !ok || len(strung(value)) != len(list) {
			return wrong(at, "is no list of names")
		}
	case "enum":
		if list, ok := value.([]any); !ok || len(list) == 0 {
			return wrong(at, "is no list of values")
		}
	case "const":
		to["enum"] = []any{value}
		return nil
	case "properties", "items", "additionalProperties", "not", "allOf", "anyOf", "oneOf":
		below, fault := c.below(here, keyword, value)
		to[keyword] = below
		return fault
	default:
		return nil
	}
	to[keyword] = value
	return nil
}

// below compiles the schemas inside a keyword.
func (c *compiler) below(here spot, keyword string, value any) (any, *contract.FieldError) {
	at := here.path + "." + keyword
	nested := func(there spot, value any) (map[string]any, *contract.FieldError) {
		from, ok := value.(map[string]any)
		if !ok {
			return nil, wrong(there.path, "is no schema")
		}
		return c.schema(there, from)
	}
	switch keyword {
	case "properties":
		from, ok := value.(map[string]any)
		if !ok {
			return nil, wrong(at, "is no object of schemas")
		}
		to := make(map[string]any, len(from))
		for _, name := range slices.Sorted(maps.Keys(from)) {
			there := spot{path: at + "." + name}
			if here.root {
				there.property = &name
			}
			one, fault := nested(there, from[name])
			if fault != nil {
				return nil, fault
			}
			to[name] = one
		}
		return to, nil
	case "allOf", "anyOf", "oneOf":
		from, ok := value.([]any)
		if !ok || len(from) == 0 {
			return nil, wrong(at, "is no list of schemas")
		}
		to := make([]any, len(from))
		for i := range from {
			one, fault := nested(spot{path: fmt.Sprintf("%s[%d]", at, i)}, from[i])
			if fault != nil {
				return nil, fault
			}
			to[i] = one
		}
		return to, nil
	case "additionalProperties":
		if allowed, ok := value.(bool); ok {
			return allowed, nil
		}
	}
	return nested(spot{path: at}, value)
}

// exclusive takes over both spellings of an exclusive bound: a number, and true
// beside the bound.
func exclusive(path string, from, to map[string]any) *contract.FieldError {
	for _, b := range []struct {
		keyword, bound string
		closer         func(a, b float64) bool
	}{
		{"exclusiveMinimum", "minimum", func(a, b float64) bool { return a >= b }},
		{"exclusiveMaximum", "maximum", func(a, b float64) bool { return a <= b }},
	} {
		switch value := from[b.keyword].(type) {
		case nil:
			if _, there := from[b.keyword]; there {
				return wrong(path+"."+b.keyword, "is neither a number nor true or false")
			}
		case bool:
			if _, ok := to[b.bound]; value && ok {
				to[b.keyword] = true
			}
		case float64:
			if bound, ok := to[b.bound].(float64); !ok || b.closer(value, bound) {
				to[b.bound], to[b.keyword] = value, true
			}
		default:
			return wrong(path+"."+b.keyword, "is neither a number nor true or false")
		}
	}
	return nil
}

// text looks at what makes a property secret, and at the formats of texts.
func (c *compiler) text(here spot, from, to map[string]any) *contract.FieldError {
	path := here.path
	format := ""
	if value, there := from["format"]; there {
		var ok bool
		if format, ok = value.(string); !ok {
			return wrong(path+".format", "is no text")
		}
	}
	marked := false
	if value, there := from["secret"]; there {
		var ok bool
		if marked, ok = value.(bool); !ok {
			return wrong(path+".secret", "is neither true nor false")
		}
	}
	kind, typed := to["type"]
	isText := slices.Equal(strung(kind), []string{"string"})
	if slices.Contains(textFormats, format) || marked {
		if typed && !isText {
			return wrong(path+".type", "must be string: it is a secret, or has a format of texts")
		}
		to["type"], isText = "string", true
	}
	if slices.Contains(checkedFormats, format) && isText {
		to["format"] = format
	}
	if !marked && format != "password" {
		return nil
	}
	if here.property == nil {
		return wrong(path, "is secret; only a property at the top of the schema can be")
	}
	c.secrets[*here.property] = true
	// Whoever refers to it can't see its value.
	clear(to)
	return nil
}

// strung returns a text, or the texts of a list.
func strung(value any) []string {
	switch v := value.(type) {
	case string:
		return []string{v}
	case []any:
		var all []string
		for _, one := range v {
			if text, ok := one.(string); ok {
				all = append(all, text)
			}
		}
		return all
	default:
		return nil
	}
}
