// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"sync"
	"testing"
)

// Conformance holds a hypervisor to every promise of package hv. The promises are
// divided among the environments, which are tested at once: most of the time of a
// real one is spent waiting.
func Conformance(t *testing.T, envs ...Env) {
	t.Helper()
	type promise struct {
		name string
		test func(*testing.T, *bench)
	}
	promises := make(chan promise)
	var running sync.WaitGroup
	for _, env := range envs {
		running.Go(func() {
			for p := range promises {
				t.Run(p.name, func(t *testing.T) { p.test(t, &bench{Env: env, hv: env.Hypervisor()}) })
			}
		})
	}
	for _, group := range []map[string]func(*testing.T, *bench){
		domainTests, chainTests, copyTests, commitTests, poolTests, attachTests, detachTests,
		powerTests, definitionTests, memoryTests, growTests, dirtyTests, exportTests,
	} {
		for name, test := range group {
			promises <- promise{name, test}
		}
	}
	close(promises)
	running.Wait()
}
