package configschema_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kandev/plugin-host/hostsvc/configschema"
)

const shipped = `{
  "type": "object", "title": "Stand-up", "order": ["channel"], "additionalProperties": false,
  "required": ["channel", "token"],
  "properties": {
    "channel": {"type": "string", "minLength": 1, "maxLength": 20, "description": "where"},
    "daysAhead": {"type": "integer", "minimum": 1, "maximum": 7, "default": 2},
    "share": {"type": "number", "exclusiveMinimum": 0, "maximum": 1, "exclusiveMaximum": true},
    "mode": {"enum": ["short", "long", 5]},
    "agent": {"type": "string", "format": "agent-profile"},
    "note": {"format": "textarea", "maxLength": 10},
    "mail": {"type": "string", "format": "email"},
    "colour": {"type": "string", "format": "colour"},
    "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]+$"}, "uniqueItems": true, "maxItems": 3},
    "limits": {"type": "object", "properties": {"deep": {"type": ["integer", "null"], "multipleOf": 5}}, "additionalProperties": {"type": "boolean"}},
    "target": {"anyOf": [{"type": "string"}, {"type": "object", "required": ["id"]}]},
    "version": {"const": 2},
    "token": {"type": "string", "secret": true, "minLength": 8},
    "password": {"format": "password"}
  }
}`

func compiled(t *testing.T, schema string) *configschema.Schema {
	t.Helper()
	s, fault := configschema.Compile([]byte(schema))
	if fault != nil {
		t.Fatal(fault)
	}
	return s
}

func TestConfigurationsThatFit(t *testing.T) {
	s := compiled(t, shipped)
	if got := s.Secrets(); !slices.Equal(got, []string{"password", "token"}) {
		t.Errorf("secrets %v", got)
	}
	for _, config := range []string{
		`{"channel": "a"}`,
		`{"channel": "a", "daysAhead": 1, "share": 0.5, "mode": 5, "agent": "x", "note": "two\nlines", "mail": "a@example.com", "colour": "?"}`,
		`{"channel": "a", "daysAhead": 7, "tags": ["a", "b"], "limits": {"deep": 10, "more": true}, "target": {"id": 1}, "version": 2}`,
		`{"channel": "äöü", "daysAhead": 2.0, "limits": {"deep": null}, "target": "x"}`,
	} {
		if fault := s.Check([]byte(config), []string{"token"}); fault != nil {
			t.Errorf("%s: %v", config, fault)
		}
	}
	if fault := s.Check([]byte(`{"channel": "a"}`), []string{"password", "token"}); fault != nil {
		t.Error(fault)
	}
}

func TestConfigurationsThatDoNot(t *testing.T) {
	s := compiled(t, shipped)
	for config, want := range map[string]string{
		``:                                            "spec.config.channel: is required",
		`{}`:                                          "spec.config.channel: is required",
		`{"channel": ""}`:                             "spec.config.channel: should be at least 1 chars long",
		`{"channel": 5}`:                              "spec.config.channel: must be of type string",
		`{"channel": null}`:                           "spec.config.channel: must be of type string",
		`{"channel": "a", "daysAhead": 0}`:            "spec.config.daysAhead: should be greater than or equal to 1",
		`{"channel": "a", "daysAhead": 8}`:            "spec.config.daysAhead: should be less than or equal to 7",
		`{"channel": "a", "daysAhead": 1.5}`:          "spec.config.daysAhead: Checked value must be of type integer",
		`{"channel": "a", "daysAhead": "2"}`:          "spec.config.daysAhead: must be of type integer",
		`{"channel": "a", "share": 0}`:                "spec.config.share: should be greater than 0",
		`{"channel": "a", "share": 1}`:                "spec.config.share: should be less than 1",
		`{"channel": "a", "mode": "none"}`:            "spec.config.mode: should be one of",
		`{"channel": "a", "mode": 6}`:                 "spec.config.mode: should be one of",
		`{"channel": "a", "agent": 1}`:                "spec.config.agent: must be of type string",
		`{"channel": "a", "note": ["x"]}`:             "spec.config.note: must be of type string",
		`{"channel": "a", "note": "12345678901"}`:     "spec.config.note: should be at most 10 chars long",
		`{"channel": "a", "mail": "nobody"}`:          "spec.config.mail: must be of type email",
		`{"channel": "a", "mail": 1}`:                 "spec.config.mail: must be of type email",
		`{"channel": "a", "colour": 1}`:               "spec.config.colour: must be of type string",
		`{"channel": "a", "tags": ["a", "B"]}`:        "spec.config.tags[1]: should match",
		`{"channel": "a", "tags": ["a", "a"]}`:        "spec.config.tags: shouldn't contain duplicates",
		`{"channel": "a", "tags": ["a","b","c","d"]}`: "spec.config.tags: should have at most 3 items",
		`{"channel": "a", "limits": {"deep": 7}}`:     "spec.config.limits.deep: should be a multiple of 5",
		`{"channel": "a", "limits": {"more": 1}}`:     "spec.config.limits.more: must be of type boolean",
		`{"channel": "a", "target": 1}`:               "spec.config.target: must ",
		`{"channel": "a", "target": {}}`:              "spec.config.target: must validate at least one schema",
		`{"channel": "a", "version": 3}`:              "spec.config.version: should be one of",
		`{"channel": "a", "unknown": 1}`:              "spec.config.unknown: is a forbidden property",
		`[]`:                                          "spec.config: is no object",
		`null`:                                        "spec.config: is no object",
		`{`:                                           "spec.config: is no object",
		`{"channel": "a", "token": "hunter2!"}`:       "spec.config.token: is a secret",
		`{"channel": "a", "password": ""}`:            "spec.config.password: is a secret",
		`{"channel": "` + strings.Repeat("a", configschema.MaxBytes) + `"}`: "spec.config: is longer than 65536 bytes",
		nestedConfig(configschema.MaxDepth):                                 "spec.config: is nested deeper than 24",
	} {
		fault := s.Check([]byte(config), []string{"token"})
		if fault == nil || !strings.HasPrefix(fault.Error(), want) {
			t.Errorf("%.80s: %v, want %s", config, fault, want)
		}
		if fault != nil && strings.Contains(fault.Error(), "hunter2") {
			t.Errorf("%v shows the secret", fault)
		}
	}
}

func nestedConfig(n int) string {
	return `{"a":` + strings.Repeat(`[`, n) + `1` + strings.Repeat(`]`, n) + `}`
}

func TestSecretsComeByReference(t *testing.T) {
	s := compiled(t, shipped)
	for _, c := range []struct {
		secrets []string
		want    string
	}{
		{nil, "spec.secretRefs: token is required and missing"},
		{[]string{"password"}, "spec.secretRefs: token is required and missing"},
		{[]string{"token", "channel"}, "spec.secretRefs[channel]: has a value in spec.config too"},
		{[]string{"token", "mail"}, "spec.secretRefs[mail]: is no secret of the schema"},
		{[]string{"token", "other"}, "spec.secretRefs[other]: is no secret of the schema"},
	} {
		if fault := s.Check([]byte(`{"channel": "a"}`), c.secrets); fault == nil || fault.Error() != c.want {
			t.Errorf("%v: %v, want %s", c.secrets, fault, c.want)
		}
	}
}

func TestNoSchemaTakesEverythingWithinTheBounds(t *testing.T) {
	for _, s := range []*configschema.Schema{nil, {}, compiled(t, "")} {
		if fault := s.Check([]byte(`{"a": [1, {"b": null}]}`), []string{"token"}); fault != nil || len(s.Secrets()) != 0 {
			t.Errorf("%v, %v", fault, s.Secrets())
		}
		if fault := s.Check([]byte(`{"a": 1}`), []string{"a"}); fault == nil || fault.Field != "spec.secretRefs[a]" {
			t.Error(fault)
		}
		if fault := s.Check([]byte(nestedConfig(configschema.MaxDepth)), nil); fault == nil {
			t.Error("no bound")
		}
	}
}

// A schema is refused with the keyword to blame, where ignoring it would let pass
// what it refuses.
func TestSchemasThatAreNone(t *testing.T) {
	at := func(property string) string { return `{"properties": {"a": ` + property + `}}` }
	for schema, want := range map[string]string{
		`[]`:                                                   "spec.manifest.configSchema: is no object",
		`{"type": "array"}`:                                    "spec.manifest.configSchema.type: must be object",
		`{"properties": []}`:                                   "spec.manifest.configSchema.properties: is no object of schemas",
		`{"properties": {"a": 1}}`:                             "spec.manifest.configSchema.properties.a: is no schema",
		`{"required": "a"}`:                                    "spec.manifest.configSchema.required: is no list of names",
		`{"required": ["a", 1]}`:                               "spec.manifest.configSchema.required: is no list of names",
		`{"additionalProperties": "no"}`:                       "spec.manifest.configSchema.additionalProperties: is no schema",
		`{"$ref": "#/$defs/a"}`:                                "spec.manifest.configSchema.$ref: is a keyword that this Host doesn't check",
		`{"if": {}}`:                                           "spec.manifest.configSchema.if: is a keyword",
		`{"patternProperties": {}}`:                            "spec.manifest.configSchema.patternProperties: is a keyword",
		at(`{"type": "text"}`):                                 "spec.manifest.configSchema.properties.a.type: must be one of",
		at(`{"type": []}`):                                     "spec.manifest.configSchema.properties.a.type: is empty",
		at(`{"type": null}`):                                   "spec.manifest.configSchema.properties.a.type: must be one of",
		at(`{"minimum": "1"}`):                                 "spec.manifest.configSchema.properties.a.minimum: is no number",
		at(`{"exclusiveMinimum": "1"}`):                        "spec.manifest.configSchema.properties.a.exclusiveMinimum: is neither",
		at(`{"exclusiveMaximum": null}`):                       "spec.manifest.configSchema.properties.a.exclusiveMaximum: is neither",
		at(`{"multipleOf": 0}`):                                "spec.manifest.configSchema.properties.a.multipleOf: is no number above 0",
		at(`{"maxLength": -1}`):                                "spec.manifest.configSchema.properties.a.maxLength: is no whole number",
		at(`{"maxItems": 1.5}`):                                "spec.manifest.configSchema.properties.a.maxItems: is no whole number",
		at(`{"uniqueItems": 1}`):                               "spec.manifest.configSchema.properties.a.uniqueItems: is neither",
		at(`{"pattern": "("}`):                                 "spec.manifest.configSchema.properties.a.pattern: is no pattern",
		at(`{"pattern": "(?=a)"}`):                             "spec.manifest.configSchema.properties.a.pattern: is no pattern",
		at(`{"pattern": 1}`):                                   "spec.manifest.configSchema.properties.a.pattern: is no text",
		at(`{"enum": []}`):                                     "spec.manifest.configSchema.properties.a.enum: is no list of values",
		at(`{"format": 1}`):                                    "spec.manifest.configSchema.properties.a.format: is no text",
		at(`{"secret": "yes"}`):                                "spec.manifest.configSchema.properties.a.secret: is neither",
		at(`{"secret": true, "type": "integer"}`):              "spec.manifest.configSchema.properties.a.type: must be string",
		at(`{"format": "textarea", "type": "array"}`):          "spec.manifest.configSchema.properties.a.type: must be string",
		at(`{"anyOf": []}`):                                    "spec.manifest.configSchema.properties.a.anyOf: is no list of schemas",
		at(`{"oneOf": [1]}`):                                   "spec.manifest.configSchema.properties.a.oneOf[0]: is no schema",
		at(`{"items": [{}]}`):                                  "spec.manifest.configSchema.properties.a.items: is no schema",
		at(`{"not": true}`):                                    "spec.manifest.configSchema.properties.a.not: is no schema",
		at(`{"properties": {"b": {"secret": true}}}`):          "spec.manifest.configSchema.properties.a.properties.b: is secret; only",
		at(`{"items": {"format": "password"}}`):                "spec.manifest.configSchema.properties.a.items: is secret; only",
		`{"allOf": [{"properties": {"a": {"secret": true}}}]}`: "spec.manifest.configSchema.allOf[0].properties.a: is secret; only",
		`{"secret": true}`:                                     "spec.manifest.configSchema: is secret; only",
		at(`{"title": "` + strings.Repeat("a", configschema.MaxBytes) + `"}`): "spec.manifest.configSchema: is longer than",
	} {
		if _, fault := configschema.Compile([]byte(schema)); fault == nil || !strings.HasPrefix(fault.Error(), want) {
			t.Errorf("%.80s: %v, want %s", schema, fault, want)
		}
	}
}

// A name with dots is a name, not a way into another schema.
func TestAPropertyCanHaveAnyName(t *testing.T) {
	s := compiled(t, `{"properties": {"a.properties.b": {"secret": true}, "": {"type": "integer"}}}`)
	if got := s.Secrets(); !slices.Equal(got, []string{"a.properties.b"}) {
		t.Errorf("secrets %v", got)
	}
	if fault := s.Check([]byte(`{"": "x"}`), nil); fault == nil {
		t.Error("a property without a name isn't checked")
	}
}

func TestExclusiveBoundsInBothSpellings(t *testing.T) {
	for _, c := range []struct {
		keywords string
		fits     []float64
		not      []float64
	}{
		{`"exclusiveMinimum": 2`, []float64{2.1}, []float64{2, 1}},
		{`"exclusiveMinimum": 2, "minimum": 3`, []float64{3}, []float64{2.5}},
		{`"exclusiveMinimum": 3, "minimum": 2`, []float64{3.1}, []float64{3, 2}},
		{`"exclusiveMinimum": 2, "minimum": 2`, []float64{2.1}, []float64{2}},
		{`"exclusiveMaximum": true, "maximum": 5`, []float64{4.9}, []float64{5}},
		{`"exclusiveMaximum": false, "maximum": 5`, []float64{5}, []float64{5.1}},
		{`"exclusiveMaximum": 4, "maximum": 5`, []float64{3.9}, []float64{4, 5}},
		{`"exclusiveMaximum": true`, []float64{1e9}, nil},
	} {
		s := compiled(t, `{"properties": {"n": {"type": "number", `+c.keywords+`}}}`)
		for _, n := range c.fits {
			if fault := s.Check([]byte(fmt.Sprintf(`{"n": %v}`, n)), nil); fault != nil {
				t.Errorf("%s: %v: %v", c.keywords, n, fault)
			}
		}
		for _, n := range c.not {
			if fault := s.Check([]byte(fmt.Sprintf(`{"n": %v}`, n)), nil); fault == nil {
				t.Errorf("%s: %v fits", c.keywords, n)
			}
		}
	}
}

func FuzzCompileAndCheck(f *testing.F) {
	f.Add(shipped, `{"channel": "a"}`)
	f.Add(`{"properties": {"a": {"oneOf": [{"not": {}}]}}}`, `{"a": 1e400}`)
	f.Add(`{"type": ["object"], "properties": {"a": {"format": "date", "type": ["string", "null"]}}}`, `{"a": null}`)
	f.Fuzz(func(t *testing.T, schema, config string) {
		s, fault := configschema.Compile([]byte(schema))
		if fault != nil {
			if s != nil || !strings.HasPrefix(fault.Field, "spec.manifest.configSchema") {
				t.Errorf("%v", fault)
			}
			return
		}
		if fault := s.Check([]byte(config), s.Secrets()); fault != nil && !strings.HasPrefix(fault.Field, "spec.") {
			t.Errorf("%v", fault)
		}
	})
}
