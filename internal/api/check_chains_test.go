// SPDX-License-Identifier: Apache-2.0

package api

import (
	"strings"
	"testing"
)

func TestAnInstanceThatMayStartIsNotCalledKeptFromStarting(t *testing.T) {
	snapshot := ChainProblem{Message: "over OVERLAY is a snapshot", Cure: "virsh blockcommit"}
	got := CheckChains(nil)
	if got.Status != "ok" || strings.Contains(got.Message, "start") { // instances without a migration have another check
		t.Errorf("with none it is %+v", got)
	}
	got = CheckChains([]ChainProblem{snapshot})
	if got.Status != "fail" || strings.Contains(got.Message, "kept from starting") || !strings.HasPrefix(got.Advice, snapshot.Cure) {
		t.Errorf("%+v", got)
	}
	got = CheckChains([]ChainProblem{snapshot, {Message: "the definition was put back", Guarded: true}})
	if !strings.Contains(got.Message, "1 instance, kept from starting: the definition was put back; 1 disk") {
		t.Errorf("%+v", got)
	}
}
