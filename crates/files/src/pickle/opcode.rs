//! The instructions of pickles, by the names that Python's `pickletools` gives them.

pub const MARK: u8 = b'(';
pub const STOP: u8 = b'.';
pub const POP: u8 = b'0';
pub const POP_MARK: u8 = b'1';
pub const DUP: u8 = b'2';
pub const NONE: u8 = b'N';
pub const NEWTRUE: u8 = 0x88;
pub const NEWFALSE: u8 = 0x89;

pub const INT: u8 = b'I';
pub const BININT: u8 = b'J';
pub const BININT1: u8 = b'K';
pub const BININT2: u8 = b'M';
pub const LONG: u8 = b'L';
pub const LONG1: u8 = 0x8a;
pub const LONG4: u8 = 0x8b;
pub const FLOAT: u8 = b'F';
pub const BINFLOAT: u8 = b'G';

pub const STRING: u8 = b'S';
pub const BINSTRING: u8 = b'T';
pub const SHORT_BINSTRING: u8 = b'U';
pub const UNICODE: u8 = b'V';
pub const BINUNICODE: u8 = b'X';
pub const SHORT_BINUNICODE: u8 = 0x8c;
pub const BINUNICODE8: u8 = 0x8d;
pub const BINBYTES: u8 = b'B';
pub const SHORT_BINBYTES: u8 = b'C';
pub const BINBYTES8: u8 = 0x8e;
pub const BYTEARRAY8: u8 = 0x96;

pub const EMPTY_LIST: u8 = b']';
pub const LIST: u8 = b'l';
pub const APPEND: u8 = b'a';
pub const APPENDS: u8 = b'e';
pub const EMPTY_TUPLE: u8 = b')';
pub const TUPLE: u8 = b't';
pub const TUPLE1: u8 = 0x85;
pub const TUPLE2: u8 = 0x86;
pub const TUPLE3: u8 = 0x87;
pub const EMPTY_DICT: u8 = b'}';
pub const DICT: u8 = b'd';
pub const SETITEM: u8 = b's';
pub const SETITEMS: u8 = b'u';
pub const EMPTY_SET: u8 = 0x8f;
pub const ADDITEMS: u8 = 0x90;
pub const FROZENSET: u8 = 0x91;

pub const GET: u8 = b'g';
pub const BINGET: u8 = b'h';
pub const LONG_BINGET: u8 = b'j';
pub const PUT: u8 = b'p';
pub const BINPUT: u8 = b'q';
pub const LONG_BINPUT: u8 = b'r';
pub const MEMOIZE: u8 = 0x94;

pub const PROTO: u8 = 0x80;
pub const FRAME: u8 = 0x95;

/// These name a class or function.
pub const GLOBAL: u8 = b'c';
pub const INST: u8 = b'i';
pub const STACK_GLOBAL: u8 = 0x93;

/// These make or call something, or fetch it from elsewhere.
pub const REDUCE: u8 = b'R';
pub const BUILD: u8 = b'b';
pub const NEWOBJ: u8 = 0x81;
pub const BINPERSID: u8 = b'Q';

/// The same, and others that are never written down: they are refused where no names are known.
pub const REFUSED: [(u8, &str); 12] = [
    (REDUCE, "REDUCE"),
    (BUILD, "BUILD"),
    (b'o', "OBJ"),
    (NEWOBJ, "NEWOBJ"),
    (0x92, "NEWOBJ_EX"),
    (b'P', "PERSID"),
    (BINPERSID, "BINPERSID"),
    (0x82, "EXT1"),
    (0x83, "EXT2"),
    (0x84, "EXT4"),
    (0x97, "NEXT_BUFFER"),
    (0x98, "READONLY_BUFFER"),
];
