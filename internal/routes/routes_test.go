// SPDX-License-Identifier: Apache-2.0

package routes_test

import (
	"testing"

	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/routes"
)

func TestEveryProgramHasARouteOnce(t *testing.T) {
	daemon, registry := map[string]bool{}, map[string]bool{}
	for _, d := range routes.All() {
		if d.Daemon == nil && d.Registry == nil {
			t.Errorf("%s is a route of no program", d)
		}
		if d.Daemon != nil && daemon[d.String()] || d.Registry != nil && registry[d.String()] {
			t.Errorf("%s is declared twice", d)
		}
		daemon[d.String()] = daemon[d.String()] || d.Daemon != nil
		registry[d.String()] = registry[d.String()] || d.Registry != nil
	}
}

// The registry would refuse an unknown route, and so would the daemon.
func TestWhatADaemonPassesOnIsARouteOfTheRegistry(t *testing.T) {
	for _, d := range routes.All() {
		if d == routes.ShowPolicy.Declaration {
			continue // its declaration says why
		}
		if d.Daemon != nil && d.Daemon.Part.ByRegistry() && d.Registry == nil {
			t.Errorf("%s is passed on to the registry, which does not have it", d)
		}
	}
}

// A caller who could report for a host at another host's socket could take anything from it.
func TestWhatADaemonSaysOfItsHostIsForTheRegistryAlone(t *testing.T) {
	for _, d := range routes.All() {
		if d.Access == httpjson.Local && (d.Daemon != nil || d.Registry.Hosts != httpjson.HostOwn) {
			t.Errorf("%s is asked by a daemon for its host, and is for others too", d)
		}
	}
}

func TestThePathOfARequestNamesThings(t *testing.T) {
	for want, got := range map[string]string{
		"/v1/hosts":                      routes.ListHosts.PathOf(),
		"/v1/types/a%20b":                routes.ShowType.PathOf("a b"),
		"/v1/hosts/h/tasks/t%2F1/answer": routes.AnswerTask.PathOf("h", "t/1"),
		"/v1/volumes/v/migrate:estimate": routes.EstimateMigration.PathOf("v"),
		"/v1/events?follow=1&since=3":    routes.ListEvents.With("since", "3").With("follow", "1").PathOf(),
		"/v1/events":                     routes.ListEvents.With("since", "").PathOf(), // and With has not changed the route
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a path with a name too few was made")
		}
	}()
	routes.ShowHost.PathOf()
}
