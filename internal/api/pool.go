// SPDX-License-Identifier: Apache-2.0

package api

// OneShared returns the first active pool, or else the first, of the pools with one name on
// several hosts. It returns false if they are different pools: if one is not shared, or has
// another path.
func OneShared(pools []Pool) (Pool, bool) {
	var one Pool
	for i, p := range pools {
		if !p.Shared || p.Path != pools[0].Path {
			return Pool{}, false
		}
		if i == 0 || p.Active && !one.Active {
			one = p
		}
	}
	return one, len(pools) > 0
}
