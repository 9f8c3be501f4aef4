package wire_test

import (
	"bytes"
	"encoding/binary"
)

// The wire format of protobuf, as much of it as the shipped messages use. It is
// written here once more so that the bytes don't come from what is tested.

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func tag(at, kind int) []byte { return binary.AppendUvarint(nil, uint64(at)<<3|uint64(kind)) }

// number writes a varint: a bool, an enum or an integer.
func number(at int, value uint64) []byte {
	return binary.AppendUvarint(tag(at, 0), value)
}

// negative writes a negative int32 or int64: ten bytes, two's complement.
func negative(at int, value int64) []byte { return number(at, uint64(value)) }

// nested writes what has a length: a message, given by its fields.
func nested(at int, fields ...[]byte) []byte {
	content := join(fields...)
	return join(tag(at, 2), binary.AppendUvarint(nil, uint64(len(content))), content)
}

// text writes a string or bytes.
func text(at int, value string) []byte { return nested(at, []byte(value)) }

// structKV is a google.protobuf.Struct with one text: field 1 is the map, its
// entry holds the key as 1 and the value as 2, whose string is 3.
func structKV(key, value string) []byte {
	return nested(1, text(1, key), nested(2, text(3, value)))
}
