// SPDX-License-Identifier: Apache-2.0

package api

// OneShared takes the pools of one name on several hosts and returns the first that is
// active, if all of them are shared and at the same path: then they are one pool. Otherwise
// it returns false.
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
