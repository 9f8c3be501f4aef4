package domain

import "strconv"

// Version is a point in a workspace's commit order: the number of the commit
// that wrote an entity. Zero means "not written yet".
type Version uint64

// ResourceVersion is the opaque text of an entity's version for one store
// epoch. Clients compare it for equality only. The epoch is part of it because
// a restored store may repeat numbers that meant something else.
func ResourceVersion(storeEpoch uint64, v Version) string {
	return strconv.FormatUint(storeEpoch, 10) + "." + strconv.FormatUint(uint64(v), 10)
}
