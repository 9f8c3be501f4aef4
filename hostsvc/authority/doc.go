// Package authority holds what a plugin may do and how that changes: the row
// that is the serialisation point of one (installation, workspace), the one
// decision about a call (Decide), the one computation of the next revision
// (Compute), the narrowing that may be written ahead of a revision (Narrowing)
// and the immutable event that every revision needs.
//
// It is pure: no I/O, no clock of its own, no Kubernetes, SQL or protobuf. The
// controllers, the Host, the tools for people and every simulation use these
// same functions, so that "effective = declared ∩ granted ∩ human policy" is
// computed in one place (I2). It imports contract only.
package authority
