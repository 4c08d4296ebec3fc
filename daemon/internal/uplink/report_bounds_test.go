// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
)

// JSON encodes < in six bytes.
func TestTheReportOfAHostWhoseLibvirtTellsOfNothingFits(t *testing.T) {
	const pools, instances = 256, 4096 // the registry's limits
	r := api.HostReport{ID: strings.Repeat("h", 36), Name: strings.Repeat("h", 64)}
	for i := range pools {
		r.Pools = append(r.Pools, api.Pool{Name: fmt.Sprintf("pool%060d", i), Host: r.ID, Type: "netfs", Path: "/" + strings.Repeat("p", 127), CapacityBytes: 1 << 50, FreeBytes: 1 << 50})
	}
	var unreadable []hv.UnreadableDomain
	for i := range instances {
		id := fmt.Sprintf("%036d", i)
		unreadable = append(unreadable, hv.UnreadableDomain{ID: id, Name: id, Err: errors.New(strings.Repeat("<", 1000))})
		r.Instances = append(r.Instances, api.InstanceReport{ID: id, State: api.InstanceError, Note: strings.Repeat("<", 1000)})
	}
	addUses(r.Pools, nil, unreadable, nil, nil, &namedFiles{})
	boundUses(r.Pools)
	boundNotes(r.Instances)
	body, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes", len(body))
	if len(body) > httpjson.MaxBodyBytes*3/4 { // the rest is for migrations
		t.Errorf("the report has %d bytes, and the registry takes %d", len(body), httpjson.MaxBodyBytes)
	}
	for _, p := range r.Pools {
		if len(p.Uses) == 0 || !strings.HasSuffix(p.Uses[0].Unknown, " more") {
			t.Fatalf("pool %s does not say how many uses it leaves out: %+v", p.Name, p.Uses)
		}
	}
	if r.Instances[0].Note == "" {
		t.Error("an instance has lost its note")
	}
}

func TestUsesThatAReportHasNoRoomForAreCounted(t *testing.T) {
	pools := []api.Pool{{Name: "p"}}
	for i := range api.MaxPoolUses + 5 {
		pools[0].Uses = append(pools[0].Uses, api.PoolUse{Domain: fmt.Sprintf("d%03d", i), Path: "/p/x"})
	}
	boundUses(pools)
	if u := pools[0].Uses; len(u) != api.MaxPoolUses || u[0].Unknown != "the report of the host has no room for 6 more" || u[1].Domain != "d000" {
		t.Errorf("%d uses, the first %+v", len(u), u[:2])
	}
	pools[0].Uses = pools[0].Uses[1:]
	boundUses(pools)
	if u := pools[0].Uses; len(u) != api.MaxPoolUses-1 || u[0].Domain != "d000" {
		t.Errorf("uses that fit are %d, the first %+v", len(u), u[0])
	}
}
