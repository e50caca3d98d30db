-- A page begins with the piece that has its first line.
CREATE INDEX result_places ON result_pieces (key, first_line, first_column);
