package domain

// MarkupState is the system markup that is open at a point of a session's text
// by one author, as a short text to be stored. "" is none.
type MarkupState string
