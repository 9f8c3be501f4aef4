package domain

import "maps"

// Object is a JSON object as encoding/json decodes one: its values are nil,
// bool, float64, string, []any and map[string]any. A nil Object is an empty
// one. Nobody writes into the Object of an entity that was read; who changes
// one clones it first.
type Object map[string]any

// Text returns the text at key, "" where there is none.
func (o Object) Text(key string) string {
	text, _ := o[key].(string)
	return text
}

// Flag tells whether the value at key is true: the boolean, or one of the texts
// "true" and "1", which older rows hold (domain facts, section 2).
func (o Object) Flag(key string) bool {
	switch value := o[key].(type) {
	case bool:
		return value
	case string:
		return value == "true" || value == "1"
	default:
		return false
	}
}

// Object returns the object at key, nil where there is none.
func (o Object) Object(key string) Object {
	switch value := o[key].(type) {
	case map[string]any:
		return value
	case Object:
		return value
	default:
		return nil
	}
}

// Objects returns the objects of the list at key, in order; what is no object
// is left out.
func (o Object) Objects(key string) []Object {
	list, _ := o[key].([]any)
	objects := make([]Object, 0, len(list))
	for _, item := range list {
		switch value := item.(type) {
		case map[string]any:
			objects = append(objects, value)
		case Object:
			objects = append(objects, value)
		}
	}
	return objects
}

// Number returns the whole number at key, 0 where there is none.
func (o Object) Number(key string) int {
	switch value := o[key].(type) {
	case float64:
		return int(value)
	case int:
		return value
	default:
		return 0
	}
}

// With returns a copy of the object whose member at key is value.
func (o Object) With(key string, value any) Object {
	changed := make(Object, len(o)+1)
	maps.Copy(changed, o)
	changed[key] = value
	return changed
}

// Size is how many bytes the names and texts of the object have at any depth, and a few for
// each value: about what it takes on the wire.
func (o Object) Size() int { return sizeOf(map[string]any(o)) }

func sizeOf(value any) int {
	const perValue = 8
	n := perValue
	switch v := value.(type) {
	case string:
		n += len(v)
	case Object:
		return sizeOf(map[string]any(v))
	case map[string]any:
		for name, member := range v {
			n += len(name) + sizeOf(member)
		}
	case []any:
		for _, item := range v {
			n += sizeOf(item)
		}
	}
	return n
}

// MaxDepth is how many objects and lists of an Object that plugins read may stand in
// each other, itself included. Readers of most languages refuse a message with more
// than 100 in each other, of which an object is three.
const MaxDepth = 32

// Deeper tells whether more than most objects and lists stand in each other.
func (o Object) Deeper(most int) bool { return deeper(map[string]any(o), most) }

func deeper(value any, most int) bool {
	switch v := value.(type) {
	case Object:
		return deeper(map[string]any(v), most)
	case map[string]any:
		for _, member := range v {
			if deeper(member, most-1) {
				return true
			}
		}
	case []any:
		for _, item := range v {
			if deeper(item, most-1) {
				return true
			}
		}
	default:
		return false
	}
	return most < 1
}
