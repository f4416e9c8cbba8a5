/* The inner loops of a restore and of a lookup, used if a compiler was available
 * (data/encoding/native.py).
 *
 * The Python code beside them defines their meaning (data/replica/stage.py, data/query/pull.py,
 * partition_keys.py, literal_lookup.py, statement_lookup.py and list_lookup.py,
 * node/worker/query_batch/reads.py, row_values.py, stored_rows.py and arrow.py here): each function
 * returns what that returns, or None, "take the slow path". Unusual input is refused here, never
 * judged; the tests in tests/unit/data/encoding whose names begin with test_native compare the two.
 *
 * Nothing in here releases the interpreter lock or calls back into Python.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the CRC below reads words of little-endian machines"
#endif

enum { CRC = 4, FLAGS = 1, ROWTIME = 8, HEAD = CRC + FLAGS + ROWTIME };
/* msgspec follows nesting as deep as the interpreter allows; deeper than this is left to it */
enum { DEPTH_MAX = 32 };
/* data/encoding/native.py must have the same number; otherwise it ignores this module */
enum { FORM = 12 };
/* the flags of a stored row: whether its key is in it, and how many it has of the columns that were
 * added to its table in place (sql/declarations/added_columns.py has the same number) */
enum { FULL_KEY = 1, ADDED_SHIFT = 1, ADDED_MAX = 127 };
/* of a stored row that no response is made of here (data/query/literal_lookup.py) */
enum { LARGE_BYTES = 64 * 1024 };

/* ------------------------------------------------------------------ CRC-32, eight bytes a step */

static uint32_t crc_table[8][256];

static void make_crc_table(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
        crc_table[0][byte] = crc;
    }
    for (int step = 1; step < 8; step++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t before = crc_table[step - 1][byte];
            crc_table[step][byte] = before >> 8 ^ crc_table[0][before & 0xFF];
        }
}

/* As zlib.crc32(data, crc). */
static uint32_t crc32_of(const unsigned char *data, Py_ssize_t length, uint32_t crc)
{
    crc = ~crc;
    for (; length >= 8; length -= 8, data += 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        word ^= crc;
        crc = crc_table[7][word & 0xFF] ^ crc_table[6][word >> 8 & 0xFF]
            ^ crc_table[5][word >> 16 & 0xFF] ^ crc_table[4][word >> 24 & 0xFF]
            ^ crc_table[3][word >> 32 & 0xFF] ^ crc_table[2][word >> 40 & 0xFF]
            ^ crc_table[1][word >> 48 & 0xFF] ^ crc_table[0][word >> 56];
    }
    while (length--)
        crc = crc >> 8 ^ crc_table[0][(crc ^ *data++) & 0xFF];
    return ~crc;
}

static uint32_t big_endian(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void put_big_endian(unsigned char *at, uint32_t number)
{
    at[0] = number >> 24, at[1] = number >> 16, at[2] = number >> 8, at[3] = number;
}

/* ----------------------------------------------- JSON values without a space, from begin to end */

typedef const unsigned char *Text;

static int is_digit(unsigned char c) { return c >= '0' && c <= '9'; }

static Text past_digits(Text at, Text end)
{
    Text begin = at;
    while (at < end && is_digit(*at))
        at++;
    return at == begin ? NULL : at;
}

static Text past_number(Text at, Text end)
{
    if (at < end && *at == '-')
        at++;
    if (at < end && *at == '0')
        at++;
    else if (!(at = past_digits(at, end)))
        return NULL;
    if (at < end && *at == '.' && !(at = past_digits(at + 1, end)))
        return NULL;
    if (at < end && (*at == 'e' || *at == 'E')) {
        at++;
        if (at < end && (*at == '+' || *at == '-'))
            at++;
        at = past_digits(at, end);
    }
    return at;
}

/* A character of two to four bytes (RFC 3629). Python stores others as they are: left to it. */
static Text past_character(Text at, Text end)
{
    unsigned char first = *at++;
    int more = first >= 0xC2 && first <= 0xDF ? 1
             : first >= 0xE0 && first <= 0xEF ? 2
             : first >= 0xF0 && first <= 0xF4 ? 3 : 0;
    if (!more || end - at < more)
        return NULL;
    unsigned char second = *at;
    if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F)
        || (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F))
        return NULL;
    for (; more; more--, at++)
        if ((*at & 0xC0) != 0x80)
            return NULL;
    return at;
}

static Text past_string(Text at, Text end)
{
    at++;
    while (at < end) {
        unsigned char c = *at;
        if (c == '"')
            return at + 1;
        if (c < 0x20)
            return NULL;
        if (c == '\\') {
            /* \u may be half a character: the Python slow path handles it */
            if (end - at < 2 || !at[1] || !strchr("\"\\/bfnrt", at[1]))
                return NULL;
            at += 2;
        } else if (c < 0x80) {
            at++;
        } else if (!(at = past_character(at, end))) {
            return NULL;
        }
    }
    return NULL;
}

static Text past_word(Text at, Text end, const char *word)
{
    Py_ssize_t length = (Py_ssize_t)strlen(word);
    return end - at >= length && !memcmp(at, word, length) ? at + length : NULL;
}

static Text past_value(Text at, Text end, int depth);

static Text past_nested(Text at, Text end, int depth)
{
    int is_object = *at++ == '{';
    unsigned char close = is_object ? '}' : ']';
    if (depth >= DEPTH_MAX)
        return NULL;
    if (at < end && *at == close)
        return at + 1;
    for (;;) {
        if (is_object) {
            if (at >= end || *at != '"' || !(at = past_string(at, end)))
                return NULL;
            if (at >= end || *at++ != ':')
                return NULL;
        }
        if (!(at = past_value(at, end, depth + 1)) || at >= end)
            return NULL;
        if (*at == close)
            return at + 1;
        if (*at++ != ',')
            return NULL;
    }
}

/* Where a value ends; NULL: not a value, or an unusual one. */
static Text past_value(Text at, Text end, int depth)
{
    if (at >= end)
        return NULL;
    switch (*at) {
    case '"': return past_string(at, end);
    case '{': case '[': return past_nested(at, end, depth);
    case 't': return past_word(at, end, "true");
    case 'f': return past_word(at, end, "false");
    case 'n': return past_word(at, end, "null");
    default: return past_number(at, end);
    }
}

/* ------------------------------------------------------------------------------------ the rows */

/* The value of one of our headers; NULL: it is another header, or has no value. */
static PyObject *header_of(PyObject *header, PyObject *name)
{
    if (!PyTuple_CheckExact(header) || PyTuple_GET_SIZE(header) != 2)
        return NULL;
    PyObject *its_name = PyTuple_GET_ITEM(header, 0), *value = PyTuple_GET_ITEM(header, 1);
    if (!PyUnicode_CheckExact(its_name) || !PyBytes_CheckExact(value))
        return NULL;
    return its_name == name || PyUnicode_Compare(its_name, name) == 0 ? value : NULL;
}

/* The ROWTIME of a record that carries exactly our two headers, the commit's being `wanted`. */
static const char *rowtime_of(PyObject *headers, PyObject *names, PyObject *wanted)
{
    if (!PyList_CheckExact(headers) || PyList_GET_SIZE(headers) != 2)
        return NULL;
    PyObject *commit = header_of(PyList_GET_ITEM(headers, 0), PyTuple_GET_ITEM(names, 0));
    PyObject *rowtime = header_of(PyList_GET_ITEM(headers, 1), PyTuple_GET_ITEM(names, 1));
    if (!commit || !rowtime || PyBytes_GET_SIZE(rowtime) != ROWTIME)
        return NULL;
    if (PyBytes_GET_SIZE(commit) != PyBytes_GET_SIZE(wanted)
        || memcmp(PyBytes_AS_STRING(commit), PyBytes_AS_STRING(wanted), PyBytes_GET_SIZE(wanted)))
        return NULL;
    return PyBytes_AS_STRING(rowtime);
}

/* A packed row (rows.pack_row_at) of an object with the first columns, and with as many of the
 * others as its writer knew; `first_bytes`: of the heads of the first ones. NULL without an error:
 * the value is unusual. */
static PyObject *
row_of(PyObject *value, const char *rowtime, PyObject *heads, Py_ssize_t first,
       Py_ssize_t first_bytes)
{
    Py_ssize_t count = PyTuple_GET_SIZE(heads), length = PyBytes_GET_SIZE(value), n;
    Text at = (Text)PyBytes_AS_STRING(value), end = at + length;
    Py_ssize_t cells = length - first_bytes - 1; /* the last byte closes the object */
    if (cells < first)
        return NULL;
    /* there is room for what follows the first columns: its heads are longer than a comma */
    PyObject *row = PyBytes_FromStringAndSize(NULL, HEAD + 1 + cells + (first - 1) + 1);
    if (!row)
        return NULL;
    Py_ssize_t room = cells;
    unsigned char *begin = (unsigned char *)PyBytes_AS_STRING(row), *to = begin + CRC + FLAGS;
    memcpy(to, rowtime, ROWTIME), to += ROWTIME;
    for (n = 0; n < count && (n < first || end - at > 1); n++) {
        PyObject *head = PyTuple_GET_ITEM(heads, n);
        Py_ssize_t size = PyBytes_GET_SIZE(head);
        if (end - at < size || memcmp(at, PyBytes_AS_STRING(head), size))
            goto unusual;
        Text cell = at + size;
        if (n >= first)
            room -= size;
        /* if later heads are missing, this cell may be longer than all cells should be together */
        if (!(at = past_value(cell, end, 0)) || (room -= at - cell) < 0)
            goto unusual;
        *to++ = n ? ',' : '[';
        memcpy(to, cell, at - cell), to += at - cell;
    }
    if (end - at != 1 || *at != '}' || n - first > ADDED_MAX)
        goto unusual;
    *to++ = ']';
    begin[CRC] = (unsigned char)((n - first) << ADDED_SHIFT);
    put_big_endian(begin, crc32_of(begin + CRC, to - begin - CRC, 0));
    if (n > first)
        _PyBytes_Resize(&row, to - begin); /* on failure it is NULL, with an error */
    return row;
unusual:
    Py_DECREF(row);
    return NULL;
}

static int all_bytes(PyObject *tuple)
{
    for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(tuple); n++)
        if (!PyBytes_CheckExact(PyTuple_GET_ITEM(tuple, n)))
            return 0;
    return 1;
}

PyDoc_STRVAR(pack_rows_doc,
    "pack_rows(values, headers, names, wanted, heads, first)\n--\n\n"
    "Packed rows of records that all are as our writer makes them, else None.\n\n"
    "values, headers: lists of one length; names: those of our two headers; wanted: value of the\n"
    "first; heads: what stands before each column in a value, the first with its brace; first:\n"
    "how many of them each value has at least.\n"
    "Raises TypeError where these are not what they should be.");

static PyObject *pack_rows(PyObject *module, PyObject *args)
{
    PyObject *values, *headers, *names, *wanted, *heads;
    Py_ssize_t first, first_bytes = 0;
    if (!PyArg_ParseTuple(args, "O!O!O!SO!n", &PyList_Type, &values, &PyList_Type, &headers,
                          &PyTuple_Type, &names, &wanted, &PyTuple_Type, &heads, &first))
        return NULL;
    Py_ssize_t count = PyList_GET_SIZE(values);
    if (PyTuple_GET_SIZE(names) != 2 || PyTuple_GET_SIZE(heads) < 1 || !all_bytes(heads)
        || !PyUnicode_Check(PyTuple_GET_ITEM(names, 0))
        || !PyUnicode_Check(PyTuple_GET_ITEM(names, 1))) {
        PyErr_SetString(PyExc_TypeError, "names: two str; heads: bytes, at least one");
        return NULL;
    }
    if (first < 1 || first > PyTuple_GET_SIZE(heads)) {
        PyErr_SetString(PyExc_ValueError, "first: 1 to the number of heads");
        return NULL;
    }
    for (Py_ssize_t n = 0; n < first; n++)
        first_bytes += PyBytes_GET_SIZE(PyTuple_GET_ITEM(heads, n));
    if (PyList_GET_SIZE(headers) != count)
        Py_RETURN_NONE;
    PyObject *rows = PyList_New(count);
    if (!rows)
        return NULL;
    for (Py_ssize_t n = 0; n < count; n++) {
        PyObject *value = PyList_GET_ITEM(values, n), *row = NULL;
        const char *rowtime = rowtime_of(PyList_GET_ITEM(headers, n), names, wanted);
        if (rowtime && PyBytes_CheckExact(value))
            row = row_of(value, rowtime, heads, first, first_bytes);
        if (!row) {
            Py_DECREF(rows);
            if (PyErr_Occurred())
                return NULL;
            Py_RETURN_NONE;
        }
        PyList_SET_ITEM(rows, n, row);
    }
    return rows;
}

PyDoc_STRVAR(digest_doc,
    "digest(rows)\n--\n\n"
    "`digest.rows_digest` of a list of (key, stored row); None where it is anything else, or\n"
    "a row has no room for its CRC.");

static PyObject *digest(PyObject *module, PyObject *rows)
{
    uint64_t sum = 0;
    if (!PyList_CheckExact(rows))
        Py_RETURN_NONE;
    for (Py_ssize_t n = 0; n < PyList_GET_SIZE(rows); n++) {
        PyObject *pair = PyList_GET_ITEM(rows, n);
        if (!PyTuple_CheckExact(pair) || PyTuple_GET_SIZE(pair) != 2)
            Py_RETURN_NONE;
        PyObject *key = PyTuple_GET_ITEM(pair, 0), *row = PyTuple_GET_ITEM(pair, 1);
        if (!PyBytes_CheckExact(key) || !PyBytes_CheckExact(row) || PyBytes_GET_SIZE(row) < CRC)
            Py_RETURN_NONE;
        uint32_t crc = big_endian((Text)PyBytes_AS_STRING(row));
        sum += crc32_of((Text)PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), crc);
    }
    return PyLong_FromUnsignedLongLong(sum);
}

/* ------------------------------------------------------------------------------- pairs in order */

typedef struct {
    /* of what its key has after the prefix of all keys: the first eight bytes, zeros where it
       is shorter, as a number that sorts as they do */
    uint64_t word;
    PyObject *pair;
    Py_ssize_t place;
} Sortable;

/* For qsort: by the whole keys, then by their positions. */
static int compare(const void *left, const void *right)
{
    const Sortable *a = left, *b = right;
    PyObject *key_a = PyTuple_GET_ITEM(a->pair, 0), *key_b = PyTuple_GET_ITEM(b->pair, 0);
    Py_ssize_t size_a = PyBytes_GET_SIZE(key_a), size_b = PyBytes_GET_SIZE(key_b);
    int found = memcmp(PyBytes_AS_STRING(key_a), PyBytes_AS_STRING(key_b),
                       size_a < size_b ? size_a : size_b);
    if (found)
        return found;
    if (size_a != size_b)
        return size_a < size_b ? -1 : 1;
    return (a->place > b->place) - (a->place < b->place);
}

/* Radix sort by their words, from the last byte: a third of qsort's time for 100,000.
 * Returns whichever of the two arrays then holds them. */
static Sortable *by_words(Sortable *from, Sortable *to, Py_ssize_t count)
{
    for (int shift = 0; count && shift < 64; shift += 8) {
        Py_ssize_t ends[256] = {0};
        for (Py_ssize_t n = 0; n < count; n++)
            ends[from[n].word >> shift & 0xFF]++;
        if (ends[from[0].word >> shift & 0xFF] == count)
            continue; /* all have the same byte here */
        for (int byte = 1; byte < 256; byte++)
            ends[byte] += ends[byte - 1];
        for (Py_ssize_t n = count; n--;)
            to[--ends[from[n].word >> shift & 0xFF]] = from[n];
        Sortable *sorted = to;
        to = from, from = sorted;
    }
    return from;
}

static void sort_where_words_are_equal(Sortable *pairs, Py_ssize_t count)
{
    for (Py_ssize_t begin = 0, end; begin < count; begin = end) {
        for (end = begin + 1; end < count && pairs[end].word == pairs[begin].word;)
            end++;
        if (end - begin > 1)
            qsort(pairs + begin, end - begin, sizeof *pairs, compare);
    }
}

/* Length of the prefix common to all keys; -1: an item is not a pair. */
static Py_ssize_t shared_bytes(PyObject *pairs)
{
    Text first = NULL;
    Py_ssize_t shared = 0;
    for (Py_ssize_t n = 0; n < PyList_GET_SIZE(pairs); n++) {
        PyObject *pair = PyList_GET_ITEM(pairs, n);
        if (!PyTuple_CheckExact(pair) || PyTuple_GET_SIZE(pair) != 2
            || !PyBytes_CheckExact(PyTuple_GET_ITEM(pair, 0)))
            return -1;
        PyObject *key = PyTuple_GET_ITEM(pair, 0);
        Text text = (Text)PyBytes_AS_STRING(key);
        if (!first)
            first = text, shared = PyBytes_GET_SIZE(key);
        if (PyBytes_GET_SIZE(key) < shared)
            shared = PyBytes_GET_SIZE(key);
        if (memcmp(first, text, shared))
            for (shared = 0; first[shared] == text[shared];)
                shared++;
    }
    return shared;
}

static uint64_t word_of(PyObject *key, Py_ssize_t shared)
{
    Py_ssize_t size = PyBytes_GET_SIZE(key) - shared;
    unsigned char begin[8] = {0};
    memcpy(begin, PyBytes_AS_STRING(key) + shared, size < 8 ? size : 8);
    return (uint64_t)big_endian(begin) << 32 | big_endian(begin + 4);
}

PyDoc_STRVAR(in_order_doc,
    "in_order(pairs)\n--\n\n"
    "`sorted(pairs, key=itemgetter(0))` of a list of (key, anything); None where it is anything\n"
    "else.");

static PyObject *in_order(PyObject *module, PyObject *pairs)
{
    if (!PyList_CheckExact(pairs))
        Py_RETURN_NONE;
    Py_ssize_t count = PyList_GET_SIZE(pairs);
    PyObject *sorted = PyList_New(count);
    if (!sorted)
        return NULL;
    /* not before: a new list may collect garbage, and finalizers may do anything */
    Py_ssize_t shared = PyList_GET_SIZE(pairs) == count ? shared_bytes(pairs) : -1;
    if (shared < 0) {
        Py_DECREF(sorted);
        Py_RETURN_NONE;
    }
    Sortable *room = PyMem_New(Sortable, 2 * count);
    if (!room) {
        Py_DECREF(sorted);
        return PyErr_NoMemory();
    }
    for (Py_ssize_t n = 0; n < count; n++) {
        PyObject *pair = PyList_GET_ITEM(pairs, n);
        room[n] = (Sortable){word_of(PyTuple_GET_ITEM(pair, 0), shared), pair, n};
    }
    Sortable *found = by_words(room, room + count, count);
    sort_where_words_are_equal(found, count);
    for (Py_ssize_t n = 0; n < count; n++) {
        Py_INCREF(found[n].pair);
        PyList_SET_ITEM(sorted, n, found[n].pair);
    }
    PyMem_Free(room);
    return sorted;
}

/* ------------------------------------------------------------------------------- keys of a lookup */

/* LMDB's limit, less room for the start of a window (store_keys.PREFIX_BYTES_MAX) */
enum { KEY_BYTES_MAX = 511 - 8, LONG = 8 };
/* of the largest BIGINT */
enum { DIGITS_MAX = 19 };
/* data/query/literal_lookup.py has the same number */
enum { MESSAGE_BYTES_MAX = 4096 };
/* how a single key column is in Kafka (native.py) */
enum { TEXT, BIGINT, INT };

/* Kafka's Utils.murmur2; `store_keys.murmur2` has the source. */
static uint32_t murmur2(const unsigned char *data, Py_ssize_t length)
{
    const uint32_t m = 0x5BD1E995u;
    uint32_t h = 0x9747B28Cu ^ (uint32_t)length;
    for (; length >= 4; length -= 4, data += 4) {
        uint32_t k;
        memcpy(&k, data, 4);
        k *= m, k ^= k >> 24, k *= m;
        h = h * m ^ k;
    }
    if (length) {
        uint32_t rest = 0;
        memcpy(&rest, data, length);
        h = (h ^ rest) * m;
    }
    h = (h ^ h >> 13) * m;
    return h ^ h >> 15;
}

static void put_long(unsigned char *at, uint64_t number)
{
    put_big_endian(at, (uint32_t)(number >> 32)), put_big_endian(at + 4, (uint32_t)number);
}

/* A text's key in the store, and the hash of its key in Kafka; NULL without an error: unusual. */
static PyObject *text_key(PyObject *value, uint32_t *hash)
{
    Py_ssize_t length;
    if (!PyUnicode_CheckExact(value))
        return NULL;
    const char *text = PyUnicode_AsUTF8AndSize(value, &length);
    if (!text) {
        PyErr_Clear(); /* half a character, which has no UTF-8 */
        return NULL;
    }
    if (length + 2 > KEY_BYTES_MAX || memchr(text, 0, length))
        return NULL;
    PyObject *key = PyBytes_FromStringAndSize(NULL, length + 2);
    if (!key)
        return NULL;
    memcpy(PyBytes_AS_STRING(key), text, length);
    memcpy(PyBytes_AS_STRING(key) + length, "\0\1", 2);
    *hash = murmur2((Text)text, length);
    return key;
}

/* The same of an INTEGER or BIGINT in 64 bits, which a store keeps alike. */
static PyObject *number_bytes(uint64_t number, long kind, uint32_t *hash)
{
    unsigned char raw[LONG], key[LONG];
    put_long(raw, number);
    put_long(key, number ^ (uint64_t)1 << 63);
    *hash = kind == INT ? murmur2(raw + 4, 4) : murmur2(raw, LONG);
    return PyBytes_FromStringAndSize((const char *)key, LONG);
}

static PyObject *number_key(PyObject *value, int kind, uint32_t *hash)
{
    int overflow;
    if (!PyLong_CheckExact(value))
        return NULL;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow || (kind == INT && (number < INT32_MIN || number > INT32_MAX)))
        return NULL;
    return number_bytes((uint64_t)number, kind, hash);
}

/* The lists of a partition in `found`, borrowed; they are made when they are first wanted. */
static PyObject *lists_of(PyObject *found, long partition)
{
    PyObject *number = PyLong_FromLong(partition);
    if (!number)
        return NULL;
    PyObject *lists = PyDict_GetItemWithError(found, number);
    if (!lists && !PyErr_Occurred()) {
        PyObject *made = Py_BuildValue("([][])");
        if (made && !PyDict_SetItem(found, number, made))
            lists = made;
        Py_XDECREF(made); /* the dictionary holds it */
    }
    Py_DECREF(number);
    return lists;
}

/* Append a key and its bytes in the store to the lists of its partition; 0: it is unusual, or there
 * is an error. */
static int add_key(PyObject *found, PyObject *key, int kind, long partitions)
{
    uint32_t hash = 0;
    PyObject *value = PyTuple_GET_ITEM(key, 0);
    PyObject *stored = kind == TEXT ? text_key(value, &hash) : number_key(value, kind, &hash);
    PyObject *lists = stored ? lists_of(found, (long)(hash & 0x7FFFFFFF) % partitions) : NULL;
    int is_added = lists && !PyList_Append(PyTuple_GET_ITEM(lists, 0), key)
        && !PyList_Append(PyTuple_GET_ITEM(lists, 1), stored);
    Py_XDECREF(stored);
    return is_added;
}

PyDoc_STRVAR(keys_by_partition_doc,
    "keys_by_partition(keys, kind, partitions, are_values=False)\n--\n\n"
    "{partition: ([key, …], [key in the store, …])} of keys of one column, each a tuple of one\n"
    "value, in their order; None where a key is unusual.\n\n"
    "kind: 0 STRING, 1 BIGINT, 2 INTEGER, all of the KAFKA format; are_values: the tuples are\n"
    "made here of what is given.");

static PyObject *keys_by_partition(PyObject *module, PyObject *args)
{
    PyObject *keys;
    int kind, are_values = 0;
    long partitions;
    if (!PyArg_ParseTuple(args, "O!il|p", &PyTuple_Type, &keys, &kind, &partitions, &are_values))
        return NULL;
    if (partitions < 1 || partitions > INT32_MAX || kind < TEXT || kind > INT) {
        PyErr_SetString(PyExc_ValueError, "kind: 0 to 2; partitions: at least 1");
        return NULL;
    }
    PyObject *found = PyDict_New();
    for (Py_ssize_t n = 0; found && n < PyTuple_GET_SIZE(keys); n++) {
        PyObject *key = PyTuple_GET_ITEM(keys, n);
        if (are_values)
            key = PyTuple_Pack(1, key);
        else
            Py_INCREF(key);
        if (!key || !PyTuple_CheckExact(key) || PyTuple_GET_SIZE(key) != 1
            || !add_key(found, key, kind, partitions))
            Py_CLEAR(found);
        else if (are_values)
            PyObject_GC_UnTrack(key); /* of a text or a number: it is in no circle */
        Py_XDECREF(key);
    }
    if (!found && !PyErr_Occurred())
        Py_RETURN_NONE;
    return found;
}

/* ------------------------------------------------------------------------------- rows of a lookup */

/* A number's digits, without a zero behind them; how many there are. snprintf takes 700
 * instructions, a thirtieth of a lookup. */
static int put_digits(char room[24], int64_t number)
{
    char digits[20];
    int count = 0, length = 0;
    uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    do
        digits[count++] = (char)('0' + rest % 10);
    while (rest /= 10);
    if (number < 0)
        room[length++] = '-';
    while (count)
        room[length++] = digits[--count];
    return length;
}

/* The cell of a key's column, into `room` where it is a number; NULL: to be left to Python. */
static Text cell_of(PyObject *key, int is_text, char room[24], Py_ssize_t *length)
{
    Text at = (Text)PyBytes_AS_STRING(key);
    Py_ssize_t size = PyBytes_GET_SIZE(key);
    if (is_text) {
        if (size < 2 || at[size - 2] || at[size - 1] != 1)
            return NULL;
        for (Py_ssize_t n = 0; n < size - 2; n++)
            if (at[n] < 0x20 || at[n] == '"' || at[n] == '\\')
                return NULL; /* JSON escapes it */
        *length = size - 2;
        return at;
    }
    if (size != LONG)
        return NULL;
    uint64_t bits = (uint64_t)big_endian(at) << 32 | big_endian(at + 4);
    *length = put_digits(room, (int64_t)(bits ^ (uint64_t)1 << 63));
    return (Text)room;
}

enum { NULL_BYTES = 5 }; /* with its comma */

/* [cell, and the columns of a stored row, those that it lacks of the added ones as null; NULL
 * without an error: it is unusual. */
static PyObject *spliced_row(PyObject *key, PyObject *data, int is_text, long added)
{
    char room[24];
    Py_ssize_t size = PyBytes_GET_SIZE(data), length;
    Text stored = (Text)PyBytes_AS_STRING(data), columns = stored + HEAD;
    Text cell = cell_of(key, is_text, room, &length);
    /* no value is less than [] */
    if (!cell || size < HEAD + 2 || stored[CRC] & FULL_KEY || *columns != '['
        || big_endian(stored) != crc32_of(stored + CRC, size - CRC, 0))
        return NULL;
    long missing = added - (stored[CRC] >> ADDED_SHIFT);
    Py_ssize_t rest = size - HEAD - 1; /* after the bracket */
    int is_alone = rest == 1, quote = is_text ? 1 : 0;
    if (missing && (missing < 0 || is_alone))
        return NULL;
    PyObject *row = PyBytes_FromStringAndSize(
        NULL, 1 + length + 2 * quote + !is_alone + rest + missing * NULL_BYTES);
    if (!row)
        return NULL;
    unsigned char *to = (unsigned char *)PyBytes_AS_STRING(row);
    *to++ = '[';
    if (quote)
        *to++ = '"';
    memcpy(to, cell, length), to += length;
    if (quote)
        *to++ = '"';
    if (!is_alone)
        *to++ = ',';
    memcpy(to, columns + 1, rest), to += rest;
    if (missing) {
        for (to--; missing; missing--)
            memcpy(to, ",null", NULL_BYTES), to += NULL_BYTES;
        *to = ']';
    }
    return row;
}

/* 0 with an error: no table has got so many columns in place. */
static int check_added(long added)
{
    if (added < 0 || added > ADDED_MAX)
        PyErr_SetString(PyExc_ValueError, "added: 0 to 127");
    return added >= 0 && added <= ADDED_MAX;
}

PyDoc_STRVAR(spliced_doc,
    "spliced(keys, stored, kind, added)\n--\n\n"
    "Rows of the keys that have one: JSON arrays, in the order of `keys`; None where a row or a\n"
    "key is unusual, or a row is damaged.\n\n"
    "keys: in the store, of one column; stored: of each its row, or None; kind: 0 STRING, else a\n"
    "number; added: how many columns were added to the table in place.");

static PyObject *spliced(PyObject *module, PyObject *args)
{
    PyObject *keys, *stored;
    int kind;
    long added;
    if (!PyArg_ParseTuple(args, "O!O!il", &PyList_Type, &keys, &PyList_Type, &stored, &kind,
                          &added)
        || !check_added(added))
        return NULL;
    PyObject *rows = PyList_GET_SIZE(keys) == PyList_GET_SIZE(stored) ? PyList_New(0) : NULL;
    for (Py_ssize_t n = 0; rows && n < PyList_GET_SIZE(keys); n++) {
        PyObject *key = PyList_GET_ITEM(keys, n), *data = PyList_GET_ITEM(stored, n);
        if (data == Py_None)
            continue;
        PyObject *row = PyBytes_CheckExact(key) && PyBytes_CheckExact(data)
            ? spliced_row(key, data, kind == TEXT, added) : NULL;
        if (!row || PyList_Append(rows, row))
            Py_CLEAR(rows);
        Py_XDECREF(row);
    }
    if (!rows && !PyErr_Occurred())
        Py_RETURN_NONE;
    return rows;
}

/* The cell of a key's value, in `room` where it is a number; NULL: to be left to Python. */
static Text cell_of_value(PyObject *value, int is_text, char room[24], Py_ssize_t *length)
{
    if (!is_text) {
        int overflow = 1;
        long long number = PyLong_CheckExact(value)
            ? PyLong_AsLongLongAndOverflow(value, &overflow) : 0;
        *length = overflow ? 0 : put_digits(room, number);
        return overflow ? NULL : (Text)room;
    }
    Text at = PyUnicode_CheckExact(value) ? (Text)PyUnicode_AsUTF8AndSize(value, length) : NULL;
    if (!at)
        PyErr_Clear(); /* half a character, which has no UTF-8 */
    for (Py_ssize_t n = 0; at && n < *length; n++)
        if (at[n] < 0x20 || at[n] == '"' || at[n] == '\\')
            return NULL; /* JSON escapes it */
    return at;
}

/* Whether the first cell of a row, which has at least one, is this one. */
static int begins_with(PyObject *row, Text cell, Py_ssize_t length, int is_text)
{
    Text at = (Text)PyBytes_AS_STRING(row);
    Py_ssize_t quote = is_text ? 1 : 0, end = 1 + length + 2 * quote;
    if (PyBytes_GET_SIZE(row) <= end || *at != '[' || memcmp(at + 1 + quote, cell, length))
        return 0;
    if (quote && (at[1] != '"' || at[end - 1] != '"'))
        return 0;
    return at[end] == ',' || at[end] == ']';
}

PyDoc_STRVAR(placed_doc,
    "placed(found, keys, rows, kind)\n--\n\n"
    "Put rows into `found` by the values of their keys: True; None where a key is unusual, or a\n"
    "row is of none of them. Some may be there already then.\n\n"
    "found: {value: row}; keys: tuples of one value; rows: JSON arrays that begin with their keys,\n"
    "in the order of these; kind: 0 STRING, else a number.");

static PyObject *placed(PyObject *module, PyObject *args)
{
    PyObject *found, *keys, *rows;
    int kind;
    if (!PyArg_ParseTuple(args, "O!O!O!i", &PyDict_Type, &found, &PyTuple_Type, &keys,
                          &PyTuple_Type, &rows, &kind))
        return NULL;
    Py_ssize_t next = 0, count = PyTuple_GET_SIZE(rows);
    for (Py_ssize_t n = 0; next < count && n < PyTuple_GET_SIZE(keys); n++) {
        PyObject *key = PyTuple_GET_ITEM(keys, n), *row = PyTuple_GET_ITEM(rows, next);
        if (!PyTuple_CheckExact(key) || PyTuple_GET_SIZE(key) != 1 || !PyBytes_CheckExact(row))
            Py_RETURN_NONE;
        char room[24];
        Py_ssize_t length;
        PyObject *value = PyTuple_GET_ITEM(key, 0);
        Text cell = cell_of_value(value, kind == TEXT, room, &length);
        if (!cell)
            Py_RETURN_NONE;
        if (!begins_with(row, cell, length, kind == TEXT))
            continue; /* this key has no row */
        if (PyDict_SetItem(found, value, row))
            return NULL;
        next++;
    }
    if (next < count)
        Py_RETURN_NONE;
    Py_RETURN_TRUE;
}

/* ------------------------------------------------------------------- the windows of one key */

static int64_t long_at(Text at)
{
    return (int64_t)(((uint64_t)big_endian(at) << 32 | big_endian(at + 4)) ^ (uint64_t)1 << 63);
}

/* [key, start, end, and the columns of a stored row; NULL without an error: it is unusual. */
static PyObject *window_row(PyObject *begin, PyObject *key, PyObject *data, int64_t size_ms,
                            long added)
{
    Py_ssize_t size = PyBytes_GET_SIZE(data), key_bytes = PyBytes_GET_SIZE(key);
    Text stored = (Text)PyBytes_AS_STRING(data), columns = stored + HEAD;
    Text at = (Text)PyBytes_AS_STRING(key) + key_bytes;
    /* of less than [1] there is nothing to splice */
    if (key_bytes < (size_ms ? 1 : 2) * LONG || size < HEAD + 3 || stored[CRC] & FULL_KEY
        || *columns != '[' || big_endian(stored) != crc32_of(stored + CRC, size - CRC, 0))
        return NULL;
    long missing = added - (stored[CRC] >> ADDED_SHIFT);
    int64_t start_ms = long_at(at - (size_ms ? 1 : 2) * LONG), end_ms;
    if (!size_ms)
        end_ms = long_at(at - LONG);
    else if (__builtin_add_overflow(start_ms, size_ms, &end_ms))
        return NULL;
    if (missing < 0)
        return NULL;
    char room[50];
    int digits = 0;
    room[digits++] = ',', digits += put_digits(room + digits, start_ms);
    room[digits++] = ',', digits += put_digits(room + digits, end_ms);
    room[digits++] = ',';
    Py_ssize_t before = PyBytes_GET_SIZE(begin), rest = size - HEAD - 1;
    PyObject *row
        = PyBytes_FromStringAndSize(NULL, before + digits + rest + missing * NULL_BYTES);
    if (!row)
        return NULL;
    char *to = PyBytes_AS_STRING(row);
    memcpy(to, PyBytes_AS_STRING(begin), before), to += before;
    memcpy(to, room, digits), to += digits;
    memcpy(to, columns + 1, rest), to += rest;
    if (missing) {
        for (to--; missing; missing--)
            memcpy(to, ",null", NULL_BYTES), to += NULL_BYTES;
        *to = ']';
    }
    return row;
}

PyDoc_STRVAR(windows_doc,
    "windows(begin, pairs, size_ms, added)\n--\n\n"
    "Rows of the windows of one key, JSON arrays; None where one is unusual or damaged.\n\n"
    "begin: a row without its end, up to its key; pairs: (key in the store, stored row);\n"
    "size_ms: of a window, 0: the end of each is in its key; added: how many columns were added\n"
    "to the table in place.");

static PyObject *windows(PyObject *module, PyObject *args)
{
    PyObject *begin, *pairs;
    long long size_ms;
    long added;
    if (!PyArg_ParseTuple(args, "SO!Ll", &begin, &PyTuple_Type, &pairs, &size_ms, &added)
        || !check_added(added))
        return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(pairs);
    PyObject *rows = PyList_New(count);
    for (Py_ssize_t n = 0; rows && n < count; n++) {
        PyObject *pair = PyTuple_GET_ITEM(pairs, n), *row = NULL;
        if (PyTuple_CheckExact(pair) && PyTuple_GET_SIZE(pair) == 2
            && PyBytes_CheckExact(PyTuple_GET_ITEM(pair, 0))
            && PyBytes_CheckExact(PyTuple_GET_ITEM(pair, 1)))
            row = window_row(begin, PyTuple_GET_ITEM(pair, 0), PyTuple_GET_ITEM(pair, 1), size_ms,
                             added);
        if (row)
            PyList_SET_ITEM(rows, n, row);
        else
            Py_CLEAR(rows);
    }
    if (!rows && !PyErr_Occurred())
        Py_RETURN_NONE;
    return rows;
}

/* ----------------------------------------------------------- a lookup by one literal, whole */

/* A text between quotes, or the digits of a whole number. */
typedef struct {
    const char *text;
    Py_ssize_t length;
    int is_text, is_negative;
} Literal;

/* A character that JSON and SQL both leave as it is between their quotes. */
static int is_plain(unsigned char c)
{
    return c >= 0x20 && c < 0x80 && c != '\'' && c != '"' && c != '\\';
}

/* The text between `begin`, behind a quote, and the only other quote, if it is short and plain. */
static int find_text(const char *begin, const char *end, Literal *found)
{
    const char *at = begin;
    while (at < end && is_plain((unsigned char)*at))
        at++;
    *found = (Literal){begin, at - begin, 1, 0};
    return at < end && *at == '\'' && !memchr(at + 1, '\'', end - at - 1)
        && found->length + 2 <= KEY_BYTES_MAX;
}

/* The digits of a whole number behind the last equals sign, if they are as they usually are. */
static int find_number(const char *begin, const char *end, Literal *found)
{
    const char *at = end;
    while (at > begin && at[-1] != '=')
        at--;
    if (at == begin)
        return 0;
    while (at < end && *at == ' ')
        at++;
    int is_negative = at < end && *at == '-';
    const char *digits = at += is_negative;
    while (at < end && is_digit((unsigned char)*at))
        at++;
    *found = (Literal){digits, at - digits, 0, is_negative};
    while (at < end && *at == ' ')
        at++;
    if (at < end && *at == '-')
        return 0; /* without their digits, 7- and -7 are the same bytes */
    return found->length && found->length <= DIGITS_MAX
        && (*digits != '0' || (found->length == 1 && !is_negative));
}

/* The literal that may be cut out of a body; 0: there is none. */
static int find_literal(PyObject *body, Literal *found)
{
    const char *begin = PyBytes_AS_STRING(body), *end = begin + PyBytes_GET_SIZE(body);
    const char *quote = memchr(begin, '\'', end - begin);
    return quote ? find_text(quote + 1, end, found) : find_number(begin, end, found);
}

/* `mark`, and `body` without its literal. */
static PyObject *frame_of(PyObject *mark, PyObject *body, const Literal *literal)
{
    Py_ssize_t marked = PyBytes_GET_SIZE(mark), size = PyBytes_GET_SIZE(body);
    const char *begin = PyBytes_AS_STRING(body);
    Py_ssize_t head = literal->text - begin, tail = size - head - literal->length;
    PyObject *frame = PyBytes_FromStringAndSize(NULL, marked + head + tail);
    if (!frame)
        return NULL;
    char *to = PyBytes_AS_STRING(frame);
    memcpy(to, PyBytes_AS_STRING(mark), marked);
    memcpy(to + marked, begin, head);
    memcpy(to + marked + head, literal->text + literal->length, tail);
    return frame;
}

PyDoc_STRVAR(cut_doc,
    "cut(mark, body)\n--\n\n"
    "mark and body without its literal: what stands between its only single quotes, or the digits\n"
    "behind its last equals sign; None where that is not one short text of plain characters, or\n"
    "not a whole number as it is usually written.");

static PyObject *cut(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || !PyBytes_CheckExact(args[0]) || !PyBytes_CheckExact(args[1])) {
        PyErr_SetString(PyExc_TypeError, "cut takes two bytes objects");
        return NULL;
    }
    Literal found;
    if (!find_literal(args[1], &found))
        Py_RETURN_NONE;
    return frame_of(args[0], args[1], &found);
}

/* A literal's key in the store, and the hash of its key in Kafka; NULL without an error: it is of
 * another kind, or too large. */
static PyObject *literal_key(const Literal *literal, long kind, uint32_t *hash)
{
    if (literal->is_text != (kind == TEXT))
        return NULL;
    if (literal->is_text) {
        PyObject *key = PyBytes_FromStringAndSize(NULL, literal->length + 2);
        if (!key)
            return NULL;
        memcpy(PyBytes_AS_STRING(key), literal->text, literal->length);
        memcpy(PyBytes_AS_STRING(key) + literal->length, "\0\1", 2);
        *hash = murmur2((Text)literal->text, literal->length);
        return key;
    }
    uint64_t number = 0; /* has room for DIGITS_MAX digits */
    for (Py_ssize_t n = 0; n < literal->length; n++)
        number = 10 * number + (uint64_t)(literal->text[n] - '0');
    if (number > (kind == INT ? (uint64_t)INT32_MAX : (uint64_t)INT64_MAX))
        return NULL;
    return number_bytes(literal->is_negative ? 0 - number : number, kind, hash);
}

/* Whether the first items of a tuple are of type int. Any other object may have an __index__, which
 * could drop the entry that is being read. */
static int are_numbers(PyObject *entry, Py_ssize_t count)
{
    for (Py_ssize_t n = 0; n < count; n++)
        if (!PyLong_Check(PyTuple_GET_ITEM(entry, n)))
            return 0;
    return 1;
}

/* An entry of `known`; 0 with an error: it is none. */
static int read_known(PyObject *entry, Py_ssize_t *size, long *kind, long *partitions)
{
    if (!PyTuple_Check(entry) || PyTuple_GET_SIZE(entry) != 5 || !are_numbers(entry, 3)
        || (PyTuple_GET_ITEM(entry, 4) != Py_None && !PyDict_CheckExact(PyTuple_GET_ITEM(entry, 4)))) {
        PyErr_SetString(PyExc_TypeError,
                        "a known literal is (size, kind, partitions, meaning, dict or None)");
        return 0;
    }
    *size = PyLong_AsSsize_t(PyTuple_GET_ITEM(entry, 0));
    if (PyErr_Occurred())
        return 0;
    *kind = PyLong_AsLong(PyTuple_GET_ITEM(entry, 1));
    if (PyErr_Occurred())
        return 0;
    *partitions = PyLong_AsLong(PyTuple_GET_ITEM(entry, 2));
    if (PyErr_Occurred())
        return 0;
    if (*partitions < 1 || *kind < TEXT || *kind > INT) {
        PyErr_SetString(PyExc_ValueError, "kind: 0 to 2; partitions: at least 1");
        return 0;
    }
    return 1;
}

/* What is known of a message. All are references of its own: to make a tuple may collect garbage,
 * and a finalizer may drop the entry that they came from. */
typedef struct {
    PyObject *meaning, *number, *key, *held;
} Known;

static void let_go(Known *found)
{
    Py_DECREF(found->meaning), Py_DECREF(found->number);
    Py_DECREF(found->key), Py_DECREF(found->held);
}

/* Whether a message is known behind a mark; then `found` is to be let go. -1: with an error. */
static int find_known(PyObject *known, PyObject *mark, PyObject *message, Known *found)
{
    Py_ssize_t size = PyBytes_GET_SIZE(message), expected;
    Literal literal;
    if (size > MESSAGE_BYTES_MAX || !find_literal(message, &literal))
        return 0;
    PyObject *frame = frame_of(mark, message, &literal);
    if (!frame)
        return -1;
    PyObject *entry = PyDict_GetItemWithError(known, frame);
    Py_DECREF(frame);
    if (!entry && PyErr_Occurred())
        return -1;
    if (!entry || entry == Py_None)
        return 0;
    long kind, partitions;
    if (!read_known(entry, &expected, &kind, &partitions))
        return -1;
    if (expected && expected != size)
        return 0;
    uint32_t hash;
    PyObject *key = literal_key(&literal, kind, &hash);
    if (!key)
        return PyErr_Occurred() ? -1 : 0;
    PyObject *number = PyLong_FromLong((long)(hash & 0x7FFFFFFF) % partitions);
    if (!number) {
        Py_DECREF(key);
        return -1;
    }
    *found = (Known){PyTuple_GET_ITEM(entry, 3), number, key, PyTuple_GET_ITEM(entry, 4)};
    Py_INCREF(found->meaning), Py_INCREF(found->held);
    return 1;
}

/* 0 with an error: they are something else. */
static int are_to_be_found(PyObject *const *args, const char *error)
{
    if (PyDict_CheckExact(args[0]) && PyBytes_CheckExact(args[1]) && PyBytes_CheckExact(args[2]))
        return 1;
    PyErr_SetString(PyExc_TypeError, error);
    return 0;
}

PyDoc_STRVAR(known_literal_doc,
    "known_literal(known, mark, message)\n--\n\n"
    "(meaning, partition of its literal, the literal's key in the store) of a message that is in\n"
    "`known`, behind `mark` and without its literal; None: it is not, or is longer than 4,096\n"
    "bytes, or `cut` finds no literal, or the number is beyond what its column holds.\n\n"
    "known: {mark and message without its literal: (bytes of the message or 0: any, kind,\n"
    "partitions, meaning, what `known_part` reads), or None}.");

static PyObject *known_literal(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    static const char error[] = "known_literal takes a dict and two bytes objects";
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, error);
        return NULL;
    }
    Known found;
    int is_known = are_to_be_found(args, error) ? find_known(args[0], args[1], args[2], &found) : -1;
    if (is_known < 0)
        return NULL;
    if (!is_known)
        Py_RETURN_NONE;
    PyObject *made = PyTuple_Pack(3, found.meaning, found.number, found.key);
    let_go(&found);
    return made;
}

enum { IS_OVER, IS_OLDER, IS_NOW };

/* Whether what is held of a partition holds, if only as of another ms; -1 with an error: it is
 * nothing that is held.
 *
 * The page is read while it cannot go away. To ask for its bytes may run Python (a class with
 * __buffer__), so the caller has a reference to what is held, which has all the rest. */
static int state_of_held(PyObject *held, PyObject *now_s, PyObject *const *causes, Py_ssize_t count)
{
    if (!PyTuple_Check(held) || PyTuple_GET_SIZE(held) != 5
        || !PyLong_Check(PyTuple_GET_ITEM(held, 1)) || !PyBytes_CheckExact(PyTuple_GET_ITEM(held, 3))
        || !PyTuple_Check(PyTuple_GET_ITEM(held, 4))) {
        PyErr_SetString(PyExc_TypeError, "what is held is (part, ms, page, its front, causes)");
        return -1;
    }
    PyObject *front = PyTuple_GET_ITEM(held, 3), *its_causes = PyTuple_GET_ITEM(held, 4);
    long long at_ms = PyLong_AsLongLong(PyTuple_GET_ITEM(held, 1));
    if (at_ms == -1 && PyErr_Occurred())
        return -1;
    double now_ms = 1000 * PyFloat_AS_DOUBLE(now_s);
    /* 2**53; no number fails this, too */
    if (!(now_ms >= 0 && now_ms < 9007199254740992.0) || PyTuple_GET_SIZE(its_causes) != count)
        return IS_OVER;
    for (Py_ssize_t n = 0; n < count; n++)
        if (PyTuple_GET_ITEM(its_causes, n) != causes[n])
            return IS_OVER;
    Py_buffer page;
    if (PyObject_GetBuffer(PyTuple_GET_ITEM(held, 2), &page, PyBUF_SIMPLE)) {
        if (!PyErr_ExceptionMatches(PyExc_ValueError))
            return -1;
        PyErr_Clear(); /* it was closed */
        return IS_OVER;
    }
    Py_ssize_t size = PyBytes_GET_SIZE(front);
    int is_same = size && page.len >= size && !memcmp(page.buf, PyBytes_AS_STRING(front), size);
    PyBuffer_Release(&page);
    return !is_same ? IS_OVER : (long long)now_ms == at_ms ? IS_NOW : IS_OLDER;
}

PyDoc_STRVAR(known_part_doc,
    "known_part(known, mark, message, now_s, *causes)\n--\n\n"
    "As `known_literal`, and two more items: what is held of the partition, if it holds now, and\n"
    "the whole of that if it holds but as of another ms; else None.\n\n"
    "known: the last item of an entry is {partition: (what is held, the ms as of which it holds,\n"
    "a buffer, what that begins with as long as it holds, tuple of causes)}, or None; now_s: Unix\n"
    "time; causes: it holds while they are the same objects.");

static PyObject *known_part(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    static const char error[] = "known_part takes a dict, two bytes objects, a float, causes";
    if (count < 4 || !PyFloat_CheckExact(args[3])) {
        PyErr_SetString(PyExc_TypeError, error);
        return NULL;
    }
    Known found;
    int is_known = are_to_be_found(args, error) ? find_known(args[0], args[1], args[2], &found) : -1;
    if (is_known < 0)
        return NULL;
    if (!is_known)
        Py_RETURN_NONE;
    PyObject *held = NULL, *made = NULL;
    if (found.held != Py_None)
        held = PyDict_GetItemWithError(found.held, found.number);
    Py_XINCREF(held); /* what runs while it is read may drop it */
    int state = held ? state_of_held(held, args[3], args + 4, count - 4) : PyErr_Occurred() ? -1 : IS_OVER;
    if (state >= 0)
        made = PyTuple_Pack(5, found.meaning, found.number, found.key,
                            state == IS_NOW ? PyTuple_GET_ITEM(held, 0) : Py_None,
                            state == IS_OLDER ? held : Py_None);
    Py_XDECREF(held);
    let_go(&found);
    return made;
}

PyDoc_STRVAR(response_doc,
    "response(around, key, stored, added=0)\n--\n\n"
    "before, the length, middle, the row of a key, after; None where `spliced` would say None, and\n"
    "of a large row.\n\n"
    "around: (before, middle, after, fixed, whether the key is a text); the length is that of the\n"
    "row plus `fixed`; added: how many columns were added to the table in place.");

static PyObject *response(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    int is_typed = (count == 3 || count == 4) && PyTuple_Check(args[0])
        && PyTuple_GET_SIZE(args[0]) == 5
        && PyBytes_CheckExact(args[1]) && PyBytes_CheckExact(args[2])
        && PyLong_CheckExact(PyTuple_GET_ITEM(args[0], 3))
        && PyBool_Check(PyTuple_GET_ITEM(args[0], 4));
    PyObject *around[3];
    for (int n = 0; is_typed && n < 3; n++)
        is_typed = PyBytes_CheckExact(around[n] = PyTuple_GET_ITEM(args[0], n));
    if (!is_typed) {
        PyErr_SetString(PyExc_TypeError, "response takes (3 bytes objects, int, bool), and 2 of them");
        return NULL;
    }
    long long fixed = PyLong_AsLongLong(PyTuple_GET_ITEM(args[0], 3));
    if (fixed < 0) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "a length is not negative");
        return NULL;
    }
    long added = count == 4 ? PyLong_AsLong(args[3]) : 0;
    if ((added == -1 && PyErr_Occurred()) || !check_added(added))
        return NULL;
    if (PyBytes_GET_SIZE(args[2]) > LARGE_BYTES)
        Py_RETURN_NONE;
    int is_text = PyTuple_GET_ITEM(args[0], 4) == Py_True;
    PyObject *row = spliced_row(args[1], args[2], is_text, added);
    if (!row) {
        if (PyErr_Occurred())
            return NULL;
        Py_RETURN_NONE;
    }
    char digits[24];
    Py_ssize_t size = PyBytes_GET_SIZE(row);
    const struct { const char *text; Py_ssize_t size; } parts[] = {
        {PyBytes_AS_STRING(around[0]), PyBytes_GET_SIZE(around[0])},
        {digits, put_digits(digits, fixed + (long long)size)},
        {PyBytes_AS_STRING(around[1]), PyBytes_GET_SIZE(around[1])},
        {PyBytes_AS_STRING(row), size},
        {PyBytes_AS_STRING(around[2]), PyBytes_GET_SIZE(around[2])},
    };
    size = 0;
    for (int n = 0; n < 5; n++)
        size += parts[n].size;
    PyObject *whole = PyBytes_FromStringAndSize(NULL, size);
    char *to = whole ? PyBytes_AS_STRING(whole) : NULL;
    for (int n = 0; to && n < 5; to += parts[n++].size)
        memcpy(to, parts[n].text, parts[n].size);
    Py_DECREF(row);
    return whole;
}

/* ------------------------------------------------- a lookup by several literals, whole */

/* data/query/statement_lookup.py has the same numbers */
enum { LITERALS_MAX = 16, CELLS_MAX = 64 };
enum { TEXT_MARK = 1, NUMBER_MARK = 2 };

/* A character beside which digits are no number of their own. */
static int is_word(unsigned char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '@'
        || c == '.' || c == '$' || c >= 0x80;
}

/* Whether digits are a whole number as it is usually written, which a BIGINT can be. */
static int is_usual(const char *digits, Py_ssize_t length, char before)
{
    static const char most[] = "9223372036854775807";
    if (*digits == '0' && (length > 1 || before == '-'))
        return 0;
    return length < DIGITS_MAX || (length == DIGITS_MAX && memcmp(digits, most, DIGITS_MAX) <= 0);
}

/* The literals of one JSON string from `at`, behind its quote; past its end, or NULL. */
static const char *literals_of_string(const char *at, const char *end, Literal *found, int *count)
{
    for (; at < end && *at != '"';) {
        unsigned char c = (unsigned char)*at;
        if (c < 0x20 || c == '\\')
            return NULL;
        if (c != '\'' && !is_digit(c)) {
            at++;
            continue;
        }
        const char *begin = at, before = at[-1]; /* at least the quote of the string */
        int is_literal = 1;
        if (c == '\'') {
            for (begin = ++at; at < end && is_plain((unsigned char)*at);)
                at++;
            if (end - at < 2 || *at != '\'' || at[1] == '\'')
                return NULL;
        } else {
            while (at < end && is_digit((unsigned char)*at))
                at++;
            is_literal = before != '"' && !is_word((unsigned char)before)
                && (at == end || !is_word((unsigned char)*at))
                && is_usual(begin, at - begin, before);
        }
        if (is_literal) {
            if (*count == LITERALS_MAX)
                return NULL;
            found[(*count)++] = (Literal){begin, at - begin, c == '\'', 0};
        }
        at += c == '\'';
    }
    return at < end ? at + 1 : NULL;
}

/* The literals in the JSON strings of a body; -1: it has too many, or something unusual. */
static int find_literals(PyObject *body, Literal *found)
{
    const char *at = PyBytes_AS_STRING(body), *end = at + PyBytes_GET_SIZE(body);
    int count = 0;
    while ((at = memchr(at, '"', end - at)))
        if (!(at = literals_of_string(at + 1, end, found, &count)))
            return -1;
    return count;
}

/* `mark`, and `body` with a byte for each of its literals. */
static PyObject *statement_of(PyObject *mark, PyObject *body, const Literal *literals, int count)
{
    Py_ssize_t marked = PyBytes_GET_SIZE(mark), size = marked + PyBytes_GET_SIZE(body) + count;
    for (int n = 0; n < count; n++)
        size -= literals[n].length;
    PyObject *made = PyBytes_FromStringAndSize(NULL, size);
    if (!made)
        return NULL;
    char *to = PyBytes_AS_STRING(made);
    const char *at = PyBytes_AS_STRING(body), *end = at + PyBytes_GET_SIZE(body);
    memcpy(to, PyBytes_AS_STRING(mark), marked), to += marked;
    for (int n = 0; n < count; n++) {
        memcpy(to, at, literals[n].text - at), to += literals[n].text - at;
        *to++ = literals[n].is_text ? TEXT_MARK : NUMBER_MARK;
        at = literals[n].text + literals[n].length;
    }
    memcpy(to, at, end - at);
    return made;
}

PyDoc_STRVAR(cut_all_doc,
    "cut_all(mark, body)\n--\n\n"
    "mark and body with one byte for each literal in its JSON strings; None where it has none, or\n"
    "more than 16, or a text that is not plain.");

static PyObject *cut_all(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || !PyBytes_CheckExact(args[0]) || !PyBytes_CheckExact(args[1])) {
        PyErr_SetString(PyExc_TypeError, "cut_all takes two bytes objects");
        return NULL;
    }
    Literal found[LITERALS_MAX];
    int literals = find_literals(args[1], found);
    if (literals < 1)
        Py_RETURN_NONE;
    return statement_of(args[0], args[1], found, literals);
}

/* The numbers of an entry of `known`: size, kind, partitions, place of the key, whether its sign
 * is a minus; 0 with an error: it is none. */
static int read_statement(PyObject *entry, long numbers[5])
{
    int is_typed = PyTuple_Check(entry) && PyTuple_GET_SIZE(entry) == 6 && are_numbers(entry, 5);
    for (int n = 0; is_typed && n < 5; n++) {
        numbers[n] = PyLong_AsLong(PyTuple_GET_ITEM(entry, n));
        if (PyErr_Occurred())
            return 0;
    }
    if (!is_typed) {
        PyErr_SetString(PyExc_TypeError, "a known statement is 5 numbers and its meaning");
        return 0;
    }
    if (numbers[1] < TEXT || numbers[1] > INT || numbers[2] < 1 || numbers[3] < 0) {
        PyErr_SetString(PyExc_ValueError, "kind: 0 to 2; partitions: at least 1; place: 0 or more");
        return 0;
    }
    return 1;
}

/* The literals as a tuple of bytes. */
static PyObject *texts_of(const Literal *literals, int count)
{
    PyObject *texts = PyTuple_New(count);
    for (int n = 0; texts && n < count; n++) {
        PyObject *text = PyBytes_FromStringAndSize(literals[n].text, literals[n].length);
        if (text)
            PyTuple_SET_ITEM(texts, n, text);
        else
            Py_CLEAR(texts);
    }
    return texts;
}

PyDoc_STRVAR(known_statement_doc,
    "known_statement(known, mark, message)\n--\n\n"
    "(meaning, partition of its key, the key in the store, its literals) of a message that is in\n"
    "`known` as `cut_all` makes it; None: it is not, or is longer than 4,096 bytes, or the key is\n"
    "none that its column holds.\n\n"
    "known: {what `cut_all` makes: (bytes of the message or 0: any, kind, partitions, which\n"
    "literal is the key, whether a minus is before it, meaning), or None}.");

static PyObject *known_statement(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 3 || !PyDict_CheckExact(args[0]) || !PyBytes_CheckExact(args[1])
        || !PyBytes_CheckExact(args[2])) {
        PyErr_SetString(PyExc_TypeError, "known_statement takes a dict and two bytes objects");
        return NULL;
    }
    Literal literals[LITERALS_MAX];
    Py_ssize_t size = PyBytes_GET_SIZE(args[2]);
    int literal_count = size > MESSAGE_BYTES_MAX ? 0 : find_literals(args[2], literals);
    if (literal_count < 1)
        Py_RETURN_NONE;
    PyObject *frame = statement_of(args[1], args[2], literals, literal_count);
    if (!frame)
        return NULL;
    PyObject *entry = PyDict_GetItemWithError(args[0], frame);
    Py_DECREF(frame);
    if (!entry && PyErr_Occurred())
        return NULL;
    if (!entry || entry == Py_None)
        Py_RETURN_NONE;
    long numbers[5];
    if (!read_statement(entry, numbers))
        return NULL;
    if ((numbers[0] && numbers[0] != size) || numbers[3] >= literal_count)
        Py_RETURN_NONE;
    Literal *literal = literals + numbers[3];
    if (literal->is_text && literal->length + 2 > KEY_BYTES_MAX)
        Py_RETURN_NONE;
    literal->is_negative = numbers[4] != 0;
    uint32_t hash;
    PyObject *key = literal_key(literal, numbers[1], &hash);
    if (!key) {
        if (PyErr_Occurred())
            return NULL;
        Py_RETURN_NONE;
    }
    PyObject *meaning = PyTuple_GET_ITEM(entry, 5), *found = NULL;
    Py_INCREF(meaning); /* a new tuple may collect garbage, and a finalizer may drop the entry */
    PyObject *partition = PyLong_FromLong((long)(hash & 0x7FFFFFFF) % numbers[2]);
    PyObject *texts = partition ? texts_of(literals, literal_count) : NULL;
    if (texts)
        found = PyTuple_Pack(4, meaning, partition, key, texts);
    Py_XDECREF(partition), Py_XDECREF(texts), Py_DECREF(key), Py_DECREF(meaning);
    return found;
}

/* A cell of a full row, as its JSON. */
typedef struct {
    Text begin, end;
} Cell;

/* What a column's cells have to be; ANY: any JSON without blanks. */
enum { TEXT_CELL, WHOLE_CELL, BOOLEAN_CELL, ANY_CELL };
enum { EQUAL, UNEQUAL, LESS, LESS_OR_EQUAL, GREATER, GREATER_OR_EQUAL };

static int is_word_cell(Cell cell, const char *word)
{
    Py_ssize_t length = (Py_ssize_t)strlen(word);
    return cell.end - cell.begin == length && !memcmp(cell.begin, word, length);
}

static int is_null(Cell cell) { return is_word_cell(cell, "null"); }

/* A whole number of at most 18 digits, as it is usually written. */
static int read_whole(Cell cell, int64_t *number)
{
    Text at = cell.begin;
    int is_negative = at < cell.end && *at == '-';
    at += is_negative;
    Py_ssize_t length = cell.end - at;
    if (length < 1 || length >= DIGITS_MAX || (*at == '0' && (length > 1 || is_negative)))
        return 0;
    for (*number = 0; at < cell.end; at++) {
        if (!is_digit(*at))
            return 0;
        *number = 10 * *number + (*at - '0');
    }
    if (is_negative)
        *number = -*number;
    return 1;
}

/* Whether Python would show a cell as it is, decoded and encoded. */
static int is_shown_alike(Cell cell, int kind)
{
    int64_t number;
    if (kind == ANY_CELL || is_null(cell))
        return 1;
    if (kind == TEXT_CELL)
        return *cell.begin == '"' && !memchr(cell.begin, '\\', cell.end - cell.begin);
    if (kind == BOOLEAN_CELL)
        return is_word_cell(cell, "true") || is_word_cell(cell, "false");
    return kind == WHOLE_CELL && read_whole(cell, &number);
}

static int by_operator(int sign, int compared)
{
    switch (sign) {
    case EQUAL: return compared == 0;
    case UNEQUAL: return compared != 0;
    case LESS: return compared < 0;
    case LESS_OR_EQUAL: return compared <= 0;
    case GREATER: return compared > 0;
    default: return compared >= 0;
    }
}

/* `cell sign literal`: 1 true, 0 false or NULL, -1 to be left to Python. */
static int holds(Cell cell, int kind, int sign, PyObject *literal, int is_negative)
{
    Text text = (Text)PyBytes_AS_STRING(literal);
    Py_ssize_t length = PyBytes_GET_SIZE(literal);
    if (is_null(cell))
        return 0;
    if (!is_shown_alike(cell, kind))
        return -1;
    if (kind == TEXT_CELL) {
        Py_ssize_t size = cell.end - cell.begin - 2;
        int compared = memcmp(cell.begin + 1, text, size < length ? size : length);
        return by_operator(sign, compared ? compared : (size > length) - (size < length));
    }
    int64_t number, other = 0;
    if (kind != WHOLE_CELL || !read_whole(cell, &number)
        || !read_whole((Cell){text, text + length}, &other))
        return -1;
    if (is_negative)
        other = -other;
    return by_operator(sign, (number > other) - (number < other));
}

/* A cell that Python decodes without an error, whatever its column. */
static int is_simple(Cell cell)
{
    unsigned char c = *cell.begin;
    if (c == '"' || c == 't' || c == 'f' || c == 'n')
        return 1;
    Py_ssize_t length = cell.end - cell.begin;
    return c != '[' && c != '{' && length <= 30 && !memchr(cell.begin, 'e', length)
        && !memchr(cell.begin, 'E', length);
}

/* The cells of a stored array, `count` of them; 0: it is unusual. */
static int read_cells(Text at, Text end, Cell *cells, int count)
{
    if (at == end || *at++ != '[')
        return 0;
    for (int n = 0; n < count; n++) {
        if (n && (at == end || *at++ != ','))
            return 0;
        Text begin = at;
        if (!(at = past_value(at, end, 0)))
            return 0;
        cells[n] = (Cell){begin, at};
    }
    return end - at == 1 && *at == ']';
}

/* The full row: key, value columns, ROWTIME, `count` cells, of which the last `added` columns may
 * be missing in what is stored, and are null; 0: it is unusual or damaged. */
static int read_full_row(PyObject *key, PyObject *data, int is_text, Cell *cells, int count,
                         int added, char room[2][24])
{
    Py_ssize_t size = PyBytes_GET_SIZE(data), length;
    Text stored = (Text)PyBytes_AS_STRING(data);
    Text cell = cell_of(key, is_text, room[0], &length);
    if (!cell || size < HEAD + 2 || stored[CRC] & FULL_KEY
        || big_endian(stored) != crc32_of(stored + CRC, size - CRC, 0))
        return 0;
    cells[0] = (Cell){cell, cell + length};
    uint64_t ms = (uint64_t)big_endian(stored + CRC + FLAGS) << 32
        | big_endian(stored + CRC + FLAGS + 4);
    int digits = put_digits(room[1], (int64_t)ms);
    cells[count - 1] = (Cell){(Text)room[1], (Text)room[1] + digits};
    static const char null[] = "null";
    int missing = added - (stored[CRC] >> ADDED_SHIFT), there = count - 2 - missing;
    if (missing < 0)
        return 0;
    for (int n = there; n < count - 2; n++)
        cells[1 + n] = (Cell){(Text)null, (Text)null + 4};
    return read_cells(stored + HEAD, stored + size, cells + 1, there);
}

/* The cells that are shown, as a JSON array; NULL without an error: one is unusual. */
static PyObject *shown_row(const Cell *cells, int count, Text shown, Py_ssize_t shown_count,
                           int is_text)
{
    Py_ssize_t size = 2 + (shown_count ? shown_count - 1 : 0);
    for (Py_ssize_t n = 0; n < shown_count; n++) {
        int column = shown[2 * n];
        if (column >= count || (column && !is_shown_alike(cells[column], shown[2 * n + 1])))
            return NULL;
        size += cells[column].end - cells[column].begin + (column ? 0 : 2 * is_text);
    }
    PyObject *row = PyBytes_FromStringAndSize(NULL, size);
    if (!row)
        return NULL;
    char *to = PyBytes_AS_STRING(row);
    *to++ = '[';
    for (Py_ssize_t n = 0; n < shown_count; n++) {
        int column = shown[2 * n], quote = is_text && !column;
        Py_ssize_t length = cells[column].end - cells[column].begin;
        if (n)
            *to++ = ',';
        if (quote)
            *to++ = '"';
        memcpy(to, cells[column].begin, length), to += length;
        if (quote)
            *to++ = '"';
    }
    *to = ']';
    return row;
}

PyDoc_STRVAR(shown_doc,
    "shown(key, stored, is_text, program, literals)\n--\n\n"
    "The row of a key as a statement shows it; False: its conditions do not hold; None where it is\n"
    "unusual or damaged.\n\n"
    "program: how many cells a full row has, how many of them are of columns that were added in\n"
    "place, whether cells are shown decoded, how many conditions; of each condition column, kind,\n"
    "operator, literal, whether a minus is before that; then column and kind of each cell that is\n"
    "shown. A byte each.");

static PyObject *shown(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 5 || !PyBytes_CheckExact(args[0]) || !PyBytes_CheckExact(args[1])
        || !PyBool_Check(args[2]) || !PyBytes_CheckExact(args[3])
        || !PyTuple_CheckExact(args[4]) || !all_bytes(args[4])) {
        PyErr_SetString(PyExc_TypeError, "shown takes 2 bytes objects, bool, bytes, tuple of bytes");
        return NULL;
    }
    Text program = (Text)PyBytes_AS_STRING(args[3]), test = program + 4;
    Py_ssize_t size = PyBytes_GET_SIZE(args[3]);
    if (size < 4 || program[0] < 2 || program[0] > CELLS_MAX || program[1] > program[0] - 2
        || size < 4 + 5 * program[3] || (size - 4 - 5 * program[3]) % 2) {
        PyErr_SetString(PyExc_ValueError, "this is no program");
        return NULL;
    }
    int is_text = args[2] == Py_True, width = program[0];
    Cell cells[CELLS_MAX];
    char room[2][24];
    if (!read_full_row(args[0], args[1], is_text, cells, width, program[1], room))
        Py_RETURN_NONE;
    for (int n = 1; program[2] && n < width - 1; n++)
        if (!is_simple(cells[n]))
            Py_RETURN_NONE;
    int is_wanted = 1;
    for (int n = 0; n < program[3]; n++, test += 5) {
        if (test[0] < 1 || test[0] >= width || test[3] >= PyTuple_GET_SIZE(args[4]))
            Py_RETURN_NONE;
        int found = holds(cells[test[0]], test[1], test[2], PyTuple_GET_ITEM(args[4], test[3]),
                          test[4]);
        if (found < 0)
            Py_RETURN_NONE;
        is_wanted &= found;
    }
    if (!is_wanted)
        Py_RETURN_FALSE;
    PyObject *row = shown_row(cells, width, test, (program + size - test) / 2, is_text);
    if (!row && !PyErr_Occurred())
        Py_RETURN_NONE;
    return row;
}

/* ------------------------------------------------------------------- rows as columns of Arrow */

/* data/encoding/arrow.py has the same numbers */
enum { TEXTS, LONGS, INTS, DOUBLES, BOOLEANS };

/* A column of many cells, `stride` apart. */
typedef struct {
    const Cell *cells;
    Py_ssize_t count, stride;
} Cells;

static Cell cell_at(const Cells *column, Py_ssize_t n) { return column->cells[n * column->stride]; }

/* A number as Python's float(…) of what JSON has; 0: to be left to it. */
static int read_double(Cell cell, double *number)
{
    char text[40], *end;
    Py_ssize_t length = cell.end - cell.begin;
    if (length >= (Py_ssize_t)sizeof text || !(is_digit(*cell.begin) || *cell.begin == '-')
        || (length == 2 && !memcmp(cell.begin, "-0", 2))) /* the whole number has no sign */
        return 0;
    memcpy(text, cell.begin, length), text[length] = 0;
    *number = PyOS_string_to_double(text, &end, PyExc_OverflowError);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    return end == text + length;
}

/* The values of a column of fixed width, zeros where it is null; NULL without an error: one is
 * unusual. */
static PyObject *fixed_values(const Cells *column, int kind)
{
    Py_ssize_t count = column->count, width = kind == INTS ? 4 : 8;
    Py_ssize_t size = kind == BOOLEANS ? (count + 7) / 8 : count * width;
    PyObject *made = PyBytes_FromStringAndSize(NULL, size);
    if (!made)
        return NULL;
    char *to = PyBytes_AS_STRING(made);
    memset(to, 0, size);
    for (Py_ssize_t n = 0; n < count; n++) {
        Cell cell = cell_at(column, n);
        int64_t number = 0;
        double real;
        if (is_null(cell))
            continue;
        if (kind == DOUBLES && read_double(cell, &real)) {
            memcpy(to + n * width, &real, width);
        } else if (kind == BOOLEANS && (is_word_cell(cell, "true") || is_word_cell(cell, "false"))) {
            to[n / 8] |= (char)((*cell.begin == 't') << n % 8);
        } else if ((kind == LONGS || kind == INTS) && read_whole(cell, &number)
                   && (kind == LONGS || (number >= INT32_MIN && number <= INT32_MAX))) {
            memcpy(to + n * width, &number, width); /* the low bytes are the first ones */
        } else {
            Py_DECREF(made);
            return NULL;
        }
    }
    return made;
}

/* Where the texts of a column begin, and where the last one ends; NULL without an error: one is
 * unusual, or they are too many bytes. */
static PyObject *text_offsets(const Cells *column)
{
    int64_t end = 0;
    PyObject *made = PyBytes_FromStringAndSize(NULL, (column->count + 1) * 4);
    if (!made)
        return NULL;
    char *to = PyBytes_AS_STRING(made);
    memset(to, 0, 4);
    for (Py_ssize_t n = 0; n < column->count; n++) {
        Cell cell = cell_at(column, n);
        Py_ssize_t length = cell.end - cell.begin;
        int is_text = *cell.begin == '"' && !memchr(cell.begin, '\\', length);
        end += is_text ? length - 2 : 0;
        if ((!is_text && !is_null(cell)) || end > INT32_MAX) {
            Py_DECREF(made);
            return NULL;
        }
        int32_t offset = (int32_t)end;
        memcpy(to + 4 * (n + 1), &offset, 4);
    }
    return made;
}

static PyObject *text_values(const Cells *column, PyObject *offsets)
{
    int32_t size, at;
    const char *from = PyBytes_AS_STRING(offsets);
    memcpy(&size, from + 4 * column->count, 4);
    PyObject *made = PyBytes_FromStringAndSize(NULL, size);
    for (Py_ssize_t n = 0; made && n < column->count; n++) {
        Cell cell = cell_at(column, n);
        memcpy(&at, from + 4 * n, 4);
        if (*cell.begin == '"')
            memcpy(PyBytes_AS_STRING(made) + at, cell.begin + 1, cell.end - cell.begin - 2);
    }
    return made;
}

/* A bit for each cell that is not null, and how many are. */
static PyObject *validity(const Cells *column, Py_ssize_t *nulls)
{
    Py_ssize_t size = (column->count + 7) / 8;
    PyObject *made = PyBytes_FromStringAndSize(NULL, size);
    if (!made)
        return NULL;
    char *to = PyBytes_AS_STRING(made);
    memset(to, 0, size);
    *nulls = 0;
    for (Py_ssize_t n = 0; n < column->count; n++) {
        int is_there = !is_null(cell_at(column, n));
        to[n / 8] |= (char)(is_there << n % 8);
        *nulls += !is_there;
    }
    return made;
}

/* (nulls, validity or None, offsets or None, values); NULL without an error: a cell is unusual. */
static PyObject *arrow_column(const Cells *column, int kind)
{
    Py_ssize_t nulls;
    PyObject *bits = validity(column, &nulls), *offsets = NULL, *values = NULL, *made = NULL;
    if (bits && kind == TEXTS) {
        offsets = text_offsets(column);
        values = offsets ? text_values(column, offsets) : NULL;
    } else if (bits) {
        values = fixed_values(column, kind);
    }
    if (values)
        made = Py_BuildValue("(nOOO)", nulls, nulls ? bits : Py_None, offsets ? offsets : Py_None,
                             values);
    Py_XDECREF(bits), Py_XDECREF(offsets), Py_XDECREF(values);
    return made;
}

/* The cells of all rows, row by row; 0: one is unusual. */
static int read_all_cells(PyObject *rows, Cell *cells, int columns)
{
    for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(rows); n++) {
        PyObject *row = PyTuple_GET_ITEM(rows, n);
        if (!PyBytes_CheckExact(row))
            return 0;
        Text at = (Text)PyBytes_AS_STRING(row);
        if (!read_cells(at, at + PyBytes_GET_SIZE(row), cells + n * columns, columns))
            return 0;
    }
    return 1;
}

PyDoc_STRVAR(arrow_columns_doc,
    "arrow_columns(rows, kinds)\n--\n\n"
    "Of each column (nulls, bits of what is not null or None, offsets or None, values), as Arrow\n"
    "has them; None where a row or a cell is unusual.\n\n"
    "rows: JSON arrays without blanks; kinds: of each column a byte: 0 STRING, 1 BIGINT,\n"
    "2 INTEGER, 3 DOUBLE, 4 BOOLEAN.");

static PyObject *arrow_columns(PyObject *module, PyObject *args)
{
    PyObject *rows, *kinds;
    if (!PyArg_ParseTuple(args, "O!S", &PyTuple_Type, &rows, &kinds))
        return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(rows), columns = PyBytes_GET_SIZE(kinds);
    Text kind_of = (Text)PyBytes_AS_STRING(kinds);
    if (columns < 1 || columns > CELLS_MAX)
        Py_RETURN_NONE;
    for (Py_ssize_t n = 0; n < columns; n++)
        if (kind_of[n] > BOOLEANS) {
            PyErr_SetString(PyExc_ValueError, "kinds: 0 to 4");
            return NULL;
        }
    Cell *cells = count > PY_SSIZE_T_MAX / columns ? NULL : PyMem_New(Cell, count * columns);
    if (!cells)
        return PyErr_NoMemory();
    int are_usual = read_all_cells(rows, cells, (int)columns);
    PyObject *found = are_usual ? PyList_New(columns) : NULL;
    for (Py_ssize_t n = 0; found && n < columns; n++) {
        PyObject *column = arrow_column(&(Cells){cells + n, count, columns}, kind_of[n]);
        if (column)
            PyList_SET_ITEM(found, n, column);
        else
            Py_CLEAR(found);
    }
    PyMem_Free(cells);
    if (!found && !PyErr_Occurred())
        Py_RETURN_NONE;
    return found;
}

/* ---------------------------------------------------------- a lookup by a list of texts */

/* data/query/list_lookup.py has the same numbers */
enum { ITEMS_MAX = 256, LIST_BYTES_MAX = 16384 };
enum { PLACES = 4 * ITEMS_MAX };

/* A list of texts in a body, with the same separator between any two. */
typedef struct {
    Literal items[ITEMS_MAX];
    int count;
    const char *separator;
    Py_ssize_t separator_bytes;
} List;

/* A comma, and blanks around it. */
static int is_separator(const char *at, Py_ssize_t length)
{
    int commas = 0;
    for (Py_ssize_t n = 0; n < length; n++) {
        if (at[n] != ' ' && at[n] != ',')
            return 0;
        commas += at[n] == ',';
    }
    return commas == 1;
}

/* The texts between all quotes of a body, two or more; 0: they are no such list. */
static int find_list(PyObject *body, List *found)
{
    const char *begin = PyBytes_AS_STRING(body), *end = begin + PyBytes_GET_SIZE(body);
    const char *at = end - begin > LIST_BYTES_MAX ? NULL : memchr(begin, '\'', end - begin);
    for (found->count = 0; at;) {
        const char *text = ++at;
        while (at < end && is_plain((unsigned char)*at))
            at++;
        if (at == end || *at != '\'' || found->count == ITEMS_MAX
            || at - text + 2 > KEY_BYTES_MAX)
            return 0;
        found->items[found->count++] = (Literal){text, at - text, 1, 0};
        at++;
        const char *next = memchr(at, '\'', end - at);
        if (next && found->count == 1)
            found->separator = at, found->separator_bytes = next - at;
        if (next && (next - at != found->separator_bytes
                     || memcmp(at, found->separator, next - at)))
            return 0;
        at = next;
    }
    return found->count > 1 && is_separator(found->separator, found->separator_bytes);
}

/* `mark`, and `body` with two marks, and the separator between them, for the items of its list. */
static PyObject *list_frame_of(PyObject *mark, PyObject *body, const List *list)
{
    const char *begin = PyBytes_AS_STRING(body), *end = begin + PyBytes_GET_SIZE(body);
    const Literal *first = list->items, *last = list->items + list->count - 1;
    const char *rest = last->text + last->length;
    Py_ssize_t marked = PyBytes_GET_SIZE(mark), head = first->text - begin;
    /* with a quote before and behind it */
    Py_ssize_t between = list->separator_bytes + 2;
    PyObject *made = PyBytes_FromStringAndSize(NULL, marked + head + between + 2 + (end - rest));
    if (!made)
        return NULL;
    char *to = PyBytes_AS_STRING(made);
    memcpy(to, PyBytes_AS_STRING(mark), marked), to += marked;
    memcpy(to, begin, head), to += head;
    *to++ = TEXT_MARK;
    memcpy(to, list->separator - 1, between), to += between;
    *to++ = TEXT_MARK;
    memcpy(to, rest, end - rest);
    return made;
}

PyDoc_STRVAR(cut_list_doc,
    "cut_list(mark, body)\n--\n\n"
    "mark and body with one list of two texts, a byte each, for that of the body; None where what\n"
    "stands between its quotes is not a list of 2 to 256 short, plain texts.");

static PyObject *cut_list(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || !PyBytes_CheckExact(args[0]) || !PyBytes_CheckExact(args[1])) {
        PyErr_SetString(PyExc_TypeError, "cut_list takes two bytes objects");
        return NULL;
    }
    List found;
    if (!find_list(args[1], &found))
        Py_RETURN_NONE;
    return list_frame_of(args[0], args[1], &found);
}

/* Whether an item with this hash is new among `places`, which then has it. */
static int is_first(const List *list, int number, uint32_t hash, uint16_t *places)
{
    const Literal *item = list->items + number;
    uint32_t at = hash % PLACES;
    for (; places[at]; at = (at + 1) % PLACES) {
        const Literal *other = list->items + places[at] - 1;
        if (other->length == item->length && !memcmp(other->text, item->text, item->length))
            return 0;
    }
    places[at] = (uint16_t)(number + 1);
    return 1;
}

/* {partition: [key in the store, ...]}; NULL without an error: an item is there twice. */
static PyObject *keys_of_list(const List *list, long partitions)
{
    uint16_t places[PLACES] = {0};
    PyObject *found = PyDict_New();
    for (int n = 0; found && n < list->count; n++) {
        uint32_t hash;
        PyObject *key = literal_key(list->items + n, TEXT, &hash), *number = NULL, *keys = NULL;
        int is_new = key && is_first(list, n, hash, places);
        if (is_new)
            number = PyLong_FromLong((long)(hash & 0x7FFFFFFF) % partitions);
        if (number && !(keys = PyDict_GetItemWithError(found, number)) && !PyErr_Occurred()) {
            PyObject *made = PyList_New(0);
            if (made && !PyDict_SetItem(found, number, made))
                keys = made;
            Py_XDECREF(made); /* the dictionary holds it */
        }
        if (!keys || PyList_Append(keys, key))
            Py_CLEAR(found);
        Py_XDECREF(number), Py_XDECREF(key);
    }
    return found;
}

PyDoc_STRVAR(known_list_doc,
    "known_list(known, mark, body)\n--\n\n"
    "(meaning, {partition: [key in the store, ...]}) of a body that is in `known` as `cut_list`\n"
    "makes it, keys in their order; None: it is not, or names a key twice.\n\n"
    "known: {what `cut_list` makes: (partitions, meaning), or None}.");

static PyObject *known_list(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 3 || !PyDict_CheckExact(args[0]) || !PyBytes_CheckExact(args[1])
        || !PyBytes_CheckExact(args[2])) {
        PyErr_SetString(PyExc_TypeError, "known_list takes a dict and two bytes objects");
        return NULL;
    }
    List list;
    if (!PyDict_GET_SIZE(args[0]) || !find_list(args[2], &list))
        Py_RETURN_NONE;
    PyObject *frame = list_frame_of(args[1], args[2], &list);
    if (!frame)
        return NULL;
    PyObject *entry = PyDict_GetItemWithError(args[0], frame);
    Py_DECREF(frame);
    if (!entry && PyErr_Occurred())
        return NULL;
    if (!entry || entry == Py_None)
        Py_RETURN_NONE;
    if (!PyTuple_Check(entry) || PyTuple_GET_SIZE(entry) != 2 || !are_numbers(entry, 1)) {
        PyErr_SetString(PyExc_TypeError, "a known list is (partitions, meaning)");
        return NULL;
    }
    long partitions = PyLong_AsLong(PyTuple_GET_ITEM(entry, 0));
    if (PyErr_Occurred())
        return NULL;
    if (partitions < 1) {
        PyErr_SetString(PyExc_ValueError, "partitions: at least 1");
        return NULL;
    }
    PyObject *meaning = PyTuple_GET_ITEM(entry, 1), *found = NULL;
    Py_INCREF(meaning); /* a new list may collect garbage, and a finalizer may drop the entry */
    PyObject *keys = keys_of_list(&list, partitions);
    if (keys)
        found = PyTuple_Pack(2, meaning, keys);
    Py_XDECREF(keys), Py_DECREF(meaning);
    if (!found && !PyErr_Occurred())
        Py_RETURN_NONE;
    return found;
}

static PyMethodDef methods[] = {
    {"pack_rows", pack_rows, METH_VARARGS, pack_rows_doc},
    {"digest", digest, METH_O, digest_doc},
    {"in_order", in_order, METH_O, in_order_doc},
    {"keys_by_partition", keys_by_partition, METH_VARARGS, keys_by_partition_doc},
    {"spliced", spliced, METH_VARARGS, spliced_doc},
    {"placed", placed, METH_VARARGS, placed_doc},
    {"windows", windows, METH_VARARGS, windows_doc},
    {"arrow_columns", arrow_columns, METH_VARARGS, arrow_columns_doc},
    {"cut", (PyCFunction)(void (*)(void))cut, METH_FASTCALL, cut_doc},
    {"known_literal", (PyCFunction)(void (*)(void))known_literal, METH_FASTCALL, known_literal_doc},
    {"known_part", (PyCFunction)(void (*)(void))known_part, METH_FASTCALL, known_part_doc},
    {"response", (PyCFunction)(void (*)(void))response, METH_FASTCALL, response_doc},
    {"cut_all", (PyCFunction)(void (*)(void))cut_all, METH_FASTCALL, cut_all_doc},
    {"known_statement", (PyCFunction)(void (*)(void))known_statement, METH_FASTCALL,
     known_statement_doc},
    {"cut_list", (PyCFunction)(void (*)(void))cut_list, METH_FASTCALL, cut_list_doc},
    {"known_list", (PyCFunction)(void (*)(void))known_list, METH_FASTCALL, known_list_doc},
    {"shown", (PyCFunction)(void (*)(void))shown, METH_FASTCALL, shown_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "standpipe.data.encoding._native", "The inner loops of a restore and a lookup.", 0,
    methods,
};

PyMODINIT_FUNC PyInit__native(void)
{
    make_crc_table();
    PyObject *module = PyModule_Create(&definition);
    if (module && PyModule_AddIntConstant(module, "FORM", FORM) < 0)
        Py_CLEAR(module);
    return module;
}
