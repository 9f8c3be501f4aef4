// Package configschema checks a plugin's configuration against the schema in its
// manifest: JSON Schema as plugins write it, of which the keywords that check
// something are understood, or refused by name. What only describes, such as a
// title, is left alone. It is pure and imports contract only.
//
// A property with `secret: true` or `format: password` is a secret. It stands at the
// top of the schema, and its value comes by reference, never in the configuration.
package configschema
