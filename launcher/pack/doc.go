// Package pack opens what a plugin is shipped in: a gzipped tar with
// manifest.yaml, checksums.txt and executables per platform, or a plain
// executable beside its manifest.
//
// A package comes from elsewhere and is hostile until it is checked: its
// entries are files and folders with safe names, each is listed in
// checksums.txt with the hash that it has, sizes and counts are bounded while
// they are read, and nothing is seen in the install path before all of it is
// right. The optional signature over checksums.txt (checksums.txt.sig, the 64
// bytes of Ed25519) is demanded as soon as a public key is given; without a key
// it says nothing, and a package counts as unsigned.
//
// Who only wants to know what a package declares, before it is installed, reads
// its manifest by the same rules, and writes nothing.
//
// The package imports the standard library and YAML, nothing of this module.
package pack
