// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
)

// DefaultAddress has a free port, different each time: data of another program's page for its
// port, such as a service worker, would affect this page.
const DefaultAddress = "127.0.0.1:0"

// CheckAddress returns address with its name resolved. It refuses addresses that other machines
// could reach: the page shows the whole site.
func CheckAddress(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("%q is not an address with a port: give one like 127.0.0.1:9645", address)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", fmt.Errorf("%q is not a port: give a number, or 0 for a free port", port)
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || ip != netip.AddrFrom4([4]byte{127, 0, 0, 1}) && ip != netip.IPv6Loopback() {
		return "", fmt.Errorf("%q is not this machine's own address: give 127.0.0.1 or ::1, and forward the port to look from elsewhere (ssh -L)", host)
	}
	return net.JoinHostPort(ip.String(), port), nil
}
