// SPDX-License-Identifier: Apache-2.0

package routes

import "github.com/volferry/volferry/internal/api"

// Routes of volume types and policies.
var (
	ListTypes = get[[]api.VolumeType]("/v1/types", "types",
		"List the volume types", registry(anyOf), daemon(Remembers))
	CreateType = post[api.VolumeTypeCreate, api.VolumeType]("/v1/types", "type",
		"Create a volume type", registry(never), daemon(PassesOn))
	ShowType = get[api.VolumeType]("/v1/types/{type}", "type",
		"Show a volume type", registry(anyOf), daemon(Remembers))
	UpdateType = patch[api.VolumeTypeUpdate, api.VolumeType]("/v1/types/{type}", "type",
		"Change a volume type", registry(never), daemon(PassesOn))
	DeleteType = remove[api.VolumeType]("/v1/types/{type}", "type",
		"Delete a volume type", registry(never), daemon(PassesOn))

	ListPolicies = get[[]api.Policy]("/v1/policies", "policies",
		"List the policies", registry(anyOf), daemon(Remembers))
	// The registry does not have it, so this is answered only while that is away.
	ShowPolicy = get[api.Policy]("/v1/policies/{policy}", "policy",
		"Show a policy", daemon(Remembers))
	SetPolicy = put[api.PolicyUpdate, api.Policy]("/v1/policies/{policy}", "policy",
		"Turn a policy on or off", registry(never), daemon(PassesOn))
)
