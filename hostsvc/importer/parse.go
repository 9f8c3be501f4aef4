package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strconv"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// maxDepth is how deep the values of a document may be nested.
const maxDepth = 32

// syntaxError says why a text is no document; it quotes nothing of it.
type syntaxError struct {
	line    int64 // 0: where the document begins
	field   string
	problem string
}

func (e *syntaxError) Error() string { return e.problem }

// parse returns the members of a document's object, as encoding/json decodes one,
// and for YAML the lines where they stand, "" for the object itself.
func (r *reader) parse(doc raw) (values map[string]any, lines map[string]int64, err error) {
	switch {
	case doc.long:
		return nil, nil, &syntaxError{problem: "the document is longer than " + strconv.Itoa(maxDocument) + " bytes; what is larger can't be imported"}
	case !utf8.Valid(doc.text):
		return nil, nil, &syntaxError{problem: "the document is not valid UTF-8; convert the file"}
	case r.yaml:
		return parseYAML(doc)
	default:
		values, err = parseJSON(doc.text)
		return values, nil, err
	}
}

var errJSON = &syntaxError{problem: "the line is not one JSON object; write each document on one line, or begin the file with --- for YAML"}

func parseJSON(text []byte) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	value, err := jsonValue(d, 0)
	if err != nil {
		var fault *syntaxError
		if errors.As(err, &fault) {
			return nil, fault
		}
		return nil, errJSON // the decoder's text quotes what it stumbled over
	}
	object, ok := value.(map[string]any)
	if !ok {
		return nil, errJSON
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errJSON
	}
	return object, nil
}

func jsonValue(d *json.Decoder, depth int) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err //nolint:wrapcheck // replaced by the caller
	}
	open, ok := token.(json.Delim)
	if !ok {
		return token, nil
	}
	if depth == maxDepth {
		return nil, &syntaxError{problem: tooDeep}
	}
	if open == '[' {
		list := []any{}
		for d.More() {
			value, err := jsonValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		_, err = d.Token()
		return list, err //nolint:wrapcheck // replaced by the caller
	}
	object := map[string]any{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, err //nolint:wrapcheck // replaced by the caller
		}
		name, ok := token.(string)
		if !ok {
			return nil, errJSON
		}
		if _, twice := object[name]; twice {
			return nil, &syntaxError{field: shown(name), problem: "stands there twice; write it once"}
		}
		if object[name], err = jsonValue(d, depth+1); err != nil {
			return nil, err
		}
	}
	_, err = d.Token()
	return object, err //nolint:wrapcheck // replaced by the caller
}

const tooDeep = "is nested too deep; 32 levels are allowed"

func parseYAML(doc raw) (map[string]any, map[string]int64, error) {
	var node yaml.Node
	if err := yaml.Unmarshal(doc.text, &node); err != nil {
		return nil, nil, &syntaxError{problem: "the document that begins here is not YAML; check its indentation and quotes"}
	}
	if node.Kind != yaml.DocumentNode || len(node.Content) != 1 || node.Content[0].Kind != yaml.MappingNode {
		return nil, nil, &syntaxError{problem: "the document that begins here is no mapping; write kind: and its fields"}
	}
	root := node.Content[0]
	lines := map[string]int64{"": doc.line + int64(root.Line) - 1}
	for i := 0; i+1 < len(root.Content); i += 2 {
		lines[root.Content[i].Value] = doc.line + int64(root.Content[i].Line) - 1
	}
	value, err := yamlValue(doc, root, 0)
	if err != nil {
		return nil, nil, err
	}
	object, _ := value.(map[string]any)
	return object, lines, nil
}

// yamlValue makes of a node what JSON would say. What JSON can't say is refused:
// references, tags and names that are no texts.
func yamlValue(doc raw, node *yaml.Node, depth int) (any, error) {
	refuse := func(at *yaml.Node, field, problem string) error {
		return &syntaxError{line: doc.line + int64(at.Line) - 1, field: field, problem: problem}
	}
	switch {
	case node.Anchor != "" || node.Kind == yaml.AliasNode:
		return nil, refuse(node, "", "anchors and references aren't allowed; write the value where it is needed")
	case depth == maxDepth:
		return nil, refuse(node, "", tooDeep)
	case node.Kind == yaml.MappingNode && node.ShortTag() == "!!map":
		object := make(map[string]any, len(node.Content)/2)
		for i := 0; i+1 < len(node.Content); i += 2 {
			name := node.Content[i]
			if name.Kind != yaml.ScalarNode || name.ShortTag() != "!!str" {
				return nil, refuse(name, "", "a name is no text; put it into quotes")
			}
			if _, twice := object[name.Value]; twice {
				return nil, refuse(name, shown(name.Value), "stands there twice; write it once")
			}
			value, err := yamlValue(doc, node.Content[i+1], depth+1)
			if err != nil {
				return nil, err
			}
			object[name.Value] = value
		}
		return object, nil
	case node.Kind == yaml.SequenceNode && node.ShortTag() == "!!seq":
		list := make([]any, len(node.Content))
		for i, item := range node.Content {
			value, err := yamlValue(doc, item, depth+1)
			if err != nil {
				return nil, err
			}
			list[i] = value
		}
		return list, nil
	case node.Kind != yaml.ScalarNode:
		return nil, refuse(node, "", "is no value that JSON has")
	}
	switch node.ShortTag() {
	case "!!null":
		return nil, nil //nolint:nilnil // the null of JSON
	case "!!bool":
		return node.Value == "true" || node.Value == "True" || node.Value == "TRUE", nil
	case "!!str", "!!timestamp":
		return node.Value, nil
	case "!!int", "!!float":
		var number float64
		if err := node.Decode(&number); err != nil || math.IsInf(number, 0) || math.IsNaN(number) {
			return nil, refuse(node, "", "is no number that JSON has; put it into quotes if it is a text")
		}
		return number, nil
	default:
		return nil, refuse(node, "", "tags aren't allowed; write a plain value")
	}
}

// shown is the name of a member as a fault shows it. A name that isn't one of a
// field could be anything.
func shown(name string) string {
	const most = 64
	if len(name) > most || name == "" {
		return "a field"
	}
	for _, c := range name {
		if c != '_' && c != '-' && c != ':' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return "a field"
		}
	}
	return name
}
