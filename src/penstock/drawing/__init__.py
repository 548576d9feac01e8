"""What pages are drawn with, the report's and the dashboard's: one look, without a script and without a network.

formatting    how numbers, times and other people's words are written
axis          which steps and marks an axis has
charts        columns, curves, bars and strips, as HTML and SVG
html_parts    a whole document of one file, its sections, tiles and tables
style.css     how all of it looks, light and dark
"""
