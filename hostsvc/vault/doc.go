// Package vault seals the secrets that plugins keep with the Host, so that the
// database, its backups and whoever reads them hold no secret.
//
// A ring of keys comes from outside the database. The first one seals, all of them
// open, so that a key can be replaced while secrets sealed by it are there. What is
// sealed is bound to its installation and key name: moved to another row, it doesn't
// open.
//
// It imports the standard library only.
package vault
