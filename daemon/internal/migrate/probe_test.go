// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"runtime"
	"testing"
)

func TestAProbeWaitsForTheDecisionThatIsBeingMade(t *testing.T) {
	m := &Manager{}
	decided, begun, probed := false, make(chan struct{}), make(chan error, 1)
	m.admission.Lock()
	go func() {
		close(begun)
		err := m.Probe(t.Context())
		if !decided {
			t.Error("the probe did not wait")
		}
		probed <- err
	}()
	<-begun
	for range 1000 { // so that a probe that does not wait is seen
		runtime.Gosched()
	}
	decided = true
	m.admission.Unlock()
	if err := <-probed; err != nil {
		t.Error(err)
	}
}
