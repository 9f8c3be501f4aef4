package controllers

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestI3_WhatTheClusterKnowsOfTheStore(t *testing.T) {
	object := &corev1.ConfigMap{}
	for name, c := range map[string]struct {
		known  mark
		round  Round
		behind bool
	}{
		"no store so far":                      {mark{}, Round{StoreID: "a", Beat: 7}, false},
		"the same":                             {mark{storeID: "a", beat: 7, object: object}, Round{StoreID: "a", Beat: 7}, false},
		"a crash before the mark was written":  {mark{storeID: "a", beat: 7, object: object}, Round{StoreID: "a", Beat: 8}, false},
		"an older cluster":                     {mark{storeID: "a", beat: 2, object: object}, Round{StoreID: "a", Beat: 700}, false},
		"an older store":                       {mark{storeID: "a", beat: 7, object: object}, Round{StoreID: "a", Beat: 6}, true},
		"older than this process knows":        {mark{storeID: "a", beat: 6, object: object}, Round{StoreID: "a", Beat: 6, Older: true}, true},
		"older, and no mark":                   {mark{}, Round{StoreID: "a", Beat: 6, Older: true}, true},
		"another store":                        {mark{storeID: "a", beat: 7, object: object}, Round{StoreID: "b", Beat: 70}, true},
		"a new store":                          {mark{storeID: "a", beat: 7, object: object}, Round{StoreID: "b"}, true},
		"a mark that somebody else has edited": {mark{object: object, torn: true}, Round{StoreID: "a", Beat: 7}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.known.allows(c.round); errors.Is(err, errStoreBehind) != c.behind {
				t.Errorf("got %v", err)
			}
		})
	}
}
