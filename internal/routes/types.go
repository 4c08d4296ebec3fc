// SPDX-License-Identifier: Apache-2.0

package routes

import "github.com/volferry/volferry/internal/api"

// Routes of volume types and policies.
var (
	ListTypes = get[[]api.VolumeType]("/v1/types",
		"List the volume types", registry(anyOf), daemon(Remembers), paged(typeOrder))
	CreateType = post[api.VolumeTypeCreate, api.VolumeType]("/v1/types",
		"Create a volume type", registry(never), daemon(PassesOn))
	ShowType = get[api.VolumeType]("/v1/types/{type}",
		"Show a volume type", registry(anyOf), daemon(Remembers))
	UpdateType = patch[api.VolumeTypeUpdate, api.VolumeType]("/v1/types/{type}",
		"Change a volume type", registry(never), daemon(PassesOn))
	DeleteType = remove[api.VolumeType]("/v1/types/{type}",
		"Delete a volume type", registry(never), daemon(PassesOn))

	ListPolicies = get[[]api.Policy]("/v1/policies",
		"List the policies", registry(anyOf), daemon(Remembers), paged(policyOrder))
	// The registry does not serve this route: the daemon answers only while the registry is
	// unavailable.
	ShowPolicy = get[api.Policy]("/v1/policies/{policy}",
		"Show a policy", daemon(Remembers))
	SetPolicy = put[api.PolicyUpdate, api.Policy]("/v1/policies/{policy}",
		"Turn a policy on or off", registry(never), daemon(PassesOn))
)
