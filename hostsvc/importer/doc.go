// Package importer brings content into a store: workspaces with their workflows,
// tasks and conversations, from a stream of documents (docs/reference/import-format.md).
//
// A stream is read once, a batch of documents at a time, so that what is in memory
// doesn't grow with it. A batch is of one workspace and is one commit under its lock,
// together with how far the import has come: what is begun again goes on behind the
// last batch and imports nothing twice. Within a batch all documents are imported or
// none. A document refers to what stands before it or is in the store.
//
// Faults name line, kind, ID and field, and quote nothing that a document says (I14).
// An import makes no outbox event: it is no news of what happens, and plugins that
// reconcile list afterwards.
//
// The package declares its port, which the store implements. It imports the contract
// and the domain.
package importer
