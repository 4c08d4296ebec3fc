// SPDX-License-Identifier: Apache-2.0

package target

import (
	"net"
	"regexp"
	"strconv"
	"strings"

	"github.com/volferry/volferry/daemon/internal/connector"
)

// Address is an address of a target.
type Address struct{ Host, Port string }

func (a Address) String() string { return net.JoinHostPort(a.Host, a.Port) }

var hostForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.:%-]*$`)

// Addresses parses an option of a pool: HOST:PORT, or several separated by commas.
func Addresses(option, text string) (all []Address, err error) {
	for one := range strings.SplitSeq(text, ",") {
		host, port, err := net.SplitHostPort(one)
		number, portErr := strconv.ParseUint(port, 10, 16)
		if err != nil || portErr != nil || number == 0 || !hostForm.MatchString(host) {
			return nil, connector.Errorf(connector.CodeInvalid, "in %s is %.100q, which is no HOST:PORT", option, one)
		}
		all = append(all, Address{host, port})
	}
	return all, nil
}
