// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"sync"
	"testing"
)

// Conformance checks that a hypervisor keeps every promise of package hv. It skips the tests with
// the names left, and logs the reason why. AtOnce divides the tests among the environments.
func Conformance[E Env](t *testing.T, envs []E, why string, left ...string) {
	t.Helper()
	promises := map[string]func(*testing.T, E){}
	for _, group := range []map[string]func(*testing.T, *bench){
		domainTests, chainTests, copyTests, commitTests, poolTests, attachTests, detachTests,
		powerTests, definitionTests, memoryTests, growTests, dirtyTests, bitmapTests, exportTests, backupTests,
	} {
		for name, test := range group {
			if promises[name] != nil {
				t.Fatalf("two promises are called %s", name)
			}
			promises[name] = func(t *testing.T, env E) { test(t, &bench{Env: env, hv: env.Hypervisor()}) }
		}
	}
	for _, name := range left {
		if promises[name] == nil {
			t.Fatalf("no promise is called %s", name)
		}
		promises[name] = func(t *testing.T, _ E) { t.Skip("SKIPPED: " + why) }
	}
	AtOnce(t, envs, promises)
}

// AtOnce divides tests among environments, which run in parallel.
func AtOnce[E any](t *testing.T, envs []E, tests map[string]func(*testing.T, E)) {
	t.Helper()
	names := make(chan string)
	var running sync.WaitGroup
	for _, env := range envs {
		running.Go(func() {
			for name := range names {
				t.Run(name, func(t *testing.T) { tests[name](t, env) })
			}
		})
	}
	for name := range tests {
		names <- name
	}
	close(names)
	running.Wait()
}
