// SPDX-License-Identifier: Apache-2.0

// Package mtls is how hosts and operators prove to the registry over the
// network who they are: the site's own certificate authority, the certificates
// that it issues, who a certificate is, and who is let in. It must not know what
// the callers ask for.
package mtls
