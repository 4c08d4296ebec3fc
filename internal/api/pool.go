// SPDX-License-Identifier: Apache-2.0

package api

// OneShared returns the one pool that the pools of several hosts are, by the first host
// that has it active: all are shared, and at the same path. It returns false where they
// differ, or there is none.
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
