// SPDX-License-Identifier: Apache-2.0

// Package mtls authenticates hosts and operators to the registry over the network: the site's
// certificate authority, its certificates, their identities, and the authorization of callers.
package mtls
