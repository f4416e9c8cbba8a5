from standpipe.data.fetched import Headers

def pack_rows(
    values: list[bytes | None],
    headers: list[Headers | None],
    names: tuple[str, str],
    wanted: bytes,
    labels: tuple[bytes, ...],
) -> list[bytes] | None: ...
def digest(rows: list[tuple[bytes, bytes]]) -> int | None: ...
