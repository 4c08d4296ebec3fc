// SPDX-License-Identifier: Apache-2.0

package load

// ClientsPerHost are how many of the clients are of one host, as daemons have few changes on their
// way. The registry bounds the requests of a caller that it answers at a time, and the load is not
// to be bounded by that.
const ClientsPerHost = 4

// Hosts are how many hosts so many clients are of.
func Hosts(clients int) int { return (clients + ClientsPerHost - 1) / ClientsPerHost }
