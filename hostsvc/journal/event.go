package journal

import (
	"encoding/json"
	"fmt"
)

// eventSchemaVersion is the version of the shape of events' data.
const eventSchemaVersion = 1

// EncodeEvent writes what an entry's event says besides what the entry does: who
// reads it has the entry's own columns too. data is the payload under the keys that
// plugins know, nil for none; an event is a hint (I15) and never authority.
func EncodeEvent(data any) (string, error) {
	text, err := json.Marshal(struct {
		SchemaVersion int `json:"event_schema_version"`
		Data          any `json:"data,omitempty"`
	}{eventSchemaVersion, data})
	if err != nil {
		return "", fmt.Errorf("encode an event: %w", err)
	}
	return string(text), nil
}

// DecodeEvent reads what EncodeEvent wrote, or an older build. data is nil where
// there is none, or it is no object.
func DecodeEvent(text string) (schemaVersion uint32, data map[string]any) {
	var event struct {
		SchemaVersion uint32          `json:"event_schema_version"`
		Data          json.RawMessage `json:"data"`
	}
	if json.Unmarshal([]byte(text), &event) != nil {
		return 0, nil
	}
	if json.Unmarshal(event.Data, &data) != nil {
		return event.SchemaVersion, nil
	}
	return event.SchemaVersion, data
}
