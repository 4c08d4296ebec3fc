// SPDX-License-Identifier: Apache-2.0

package storetest

import "github.com/volferry/volferry/internal/api"

// WebDefinition returns host a's definition of instance web for the shelf.
func WebDefinition() *api.InstanceDefinition {
	return &api.InstanceDefinition{Domain: "<domain/>", NVRAM: []byte{0, 1, 2}, Disks: map[string]api.SlotDefinition{"vda": RootSlot}, Autostart: true}
}

// ToShelf returns host a's transition that shelves a stopped instance.
func ToShelf() api.InstanceTransition {
	in := shelfStep(api.InstanceStopped, api.InstanceShelved, "op-shelve")
	in.Definition = WebDefinition()
	return in
}

// Offload returns the transition after ToShelf: host a releases the instance.
func Offload() api.InstanceTransition {
	return shelfStep(api.InstanceShelved, api.InstanceShelvedOffloaded, "op-shelve")
}

// Claim returns the transition at the beginning of unshelving an instance on host a.
func Claim() api.InstanceTransition {
	return shelfStep(api.InstanceShelvedOffloaded, api.InstanceShelved, "op-unshelve")
}

// UndoClaim returns the transition that undoes Claim.
func UndoClaim() api.InstanceTransition {
	return shelfStep(api.InstanceShelved, api.InstanceShelvedOffloaded, "op-unshelve")
}

// Complete returns the transition after Claim: host a has defined the instance.
func Complete() api.InstanceTransition {
	return shelfStep(api.InstanceShelved, api.InstanceStopped, "op-unshelve")
}

func shelfStep(from, to api.InstanceState, opID string) api.InstanceTransition {
	return api.InstanceTransition{From: from, To: to, Host: HostA, Epoch: 1, OpID: opID}
}

// OfB returns the transition for host b.
func OfB(in api.InstanceTransition) api.InstanceTransition {
	in.Host, in.OpID = HostB, in.OpID+"-b"
	return in
}
