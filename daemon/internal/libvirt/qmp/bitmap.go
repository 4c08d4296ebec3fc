// SPDX-License-Identifier: Apache-2.0

package qmp

// Bitmap is a dirty bitmap of a node.
type Bitmap struct {
	Name       string `json:"name"`
	Recording  bool   `json:"recording"`
	Persistent bool   `json:"persistent"`
	// Inconsistent: QEMU ended without storing the bitmap.
	Inconsistent bool  `json:"inconsistent"`
	Granularity  int64 `json:"granularity"`
	Count        int64 `json:"count"`
}

// Device is a device of the guest (query-block). Inserted is its image, nil if it has none.
type Device struct {
	QDev     string `json:"qdev"`
	Inserted *struct {
		NodeName     string   `json:"node-name"`
		DirtyBitmaps []Bitmap `json:"dirty-bitmaps"`
	} `json:"inserted"`
}
