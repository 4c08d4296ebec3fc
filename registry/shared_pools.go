// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// sharedPools maps each of the site's shared pools to the names or ids of its hosts. nil allows
// all hosts that report the pool as shared.
type sharedPools map[string][]string

// UnmarshalTOML accepts a table of pools with lists of hosts, or a list of "pool" and
// "pool=host+host".
func (p *sharedPools) UnmarshalTOML(value any) error {
	switch v := value.(type) {
	case []any:
		entries, err := texts("shared_pools", v)
		if err != nil {
			return err
		}
		return p.parse(entries)
	case map[string]any:
		*p = sharedPools{}
		for _, pool := range slices.Sorted(maps.Keys(v)) {
			list, ok := v[pool].([]any)
			if !ok {
				return fmt.Errorf("shared_pools.%s is no list of hosts", pool)
			}
			hosts, err := texts("shared_pools."+pool, list)
			if err != nil {
				return err
			}
			(*p)[pool] = hosts
		}
		return nil
	}
	return fmt.Errorf("shared_pools is neither a list of pools nor a table of pools with their hosts")
}

func texts(what string, list []any) ([]string, error) {
	out := make([]string, 0, len(list))
	for _, v := range list {
		s, ok := v.(string)
		if !ok {
			return nil, fmt.Errorf("%s has %v in it, which is no text", what, v)
		}
		out = append(out, s)
	}
	return out, nil
}

// parse reads entries "pool" and "pool=host+host". An empty list means that no pool is shared.
func (p *sharedPools) parse(entries []string) error {
	*p = sharedPools{}
	for _, entry := range entries {
		pool, hosts, named := strings.Cut(entry, "=")
		if _, twice := (*p)[pool]; twice {
			return fmt.Errorf("shared_pools has %q twice", pool)
		}
		(*p)[pool] = nil
		if named {
			(*p)[pool] = strings.Split(hosts, "+")
		}
	}
	return nil
}

func (p sharedPools) check() error {
	for _, pool := range slices.Sorted(maps.Keys(p)) {
		if strings.TrimSpace(pool) != pool || pool == "" {
			return fmt.Errorf("shared_pools has %q, which is no name of a pool", pool)
		}
		hosts := p[pool]
		if hosts != nil && len(hosts) == 0 {
			return fmt.Errorf("shared_pools has the pool %q and no host that shares it; leave it out", pool)
		}
		for i, host := range hosts {
			if strings.TrimSpace(host) != host || host == "" || slices.Contains(hosts[:i], host) {
				return fmt.Errorf("shared_pools has %q for the pool %q, which is no name of a host, or is there twice", host, pool)
			}
		}
	}
	return nil
}
