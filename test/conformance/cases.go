package main

import (
	"maps"

	"google.golang.org/protobuf/proto"
)

// allCases are the cases of each method. A method that isn't here fails the run.
func allCases() map[string]methodCases {
	all := map[string]methodCases{}
	maps.Copy(all, v1Reads())
	maps.Copy(all, v1Writes())
	maps.Copy(all, v1Data())
	maps.Copy(all, exactReads())
	maps.Copy(all, exactWrites())
	return all
}

// always is a base request that is the same in each workspace.
func always(m proto.Message) func(*suite, string) proto.Message {
	return func(*suite, string) proto.Message { return proto.Clone(m) }
}

// of counts what doesn't depend on the content's rows.
func of(n int) func(*known) int { return func(*known) int { return n } }
